"""Which GPUs an image serves: generations as data, and what the wheel has for each."""
