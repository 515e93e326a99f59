"""Training of the embedded checkpoints: tokenizers, data made on the device, one file per task, and the export."""
