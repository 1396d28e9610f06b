"""`application_kit.authenticator`: only what limits use of it."""
