"""Images: folders, tables and public sets; decoding, cache, augmentation, predictions."""
