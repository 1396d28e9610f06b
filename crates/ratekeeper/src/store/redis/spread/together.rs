//! Waiting for several steps at once, in one task.

use std::future::poll_fn;
use std::task::Poll;

/// Takes all of the steps at once; their answers, in the order of the steps.
pub(super) async fn all<F: Future>(steps: impl Iterator<Item = F>) -> Vec<F::Output> {
    let mut steps: Vec<_> = steps.map(|step| (Box::pin(step), None)).collect();
    poll_fn(|context| {
        let mut is_done = true;
        for (step, answer) in steps.iter_mut().filter(|(_, answer)| answer.is_none()) {
            match step.as_mut().poll(context) {
                Poll::Ready(found) => *answer = Some(found),
                Poll::Pending => is_done = false,
            }
        }
        if is_done { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    steps.into_iter().filter_map(|(_, answer)| answer).collect()
}
