"""`application_kit.django`: what of it is about limits."""
