"""An ensemble has no code. Triton wants a version folder all the same, and a ConfigMap holds no empty folders."""
