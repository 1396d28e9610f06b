"""`application_kit.fastapi`: what of it is about limits."""
