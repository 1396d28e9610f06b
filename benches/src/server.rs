//! `make bench-server`: `ratekeeper serve` against throttlecrab-server, over HTTP. (Being written.)
