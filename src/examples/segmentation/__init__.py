"""The class of each pixel, from images and masks of one's own."""
