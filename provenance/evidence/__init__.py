"""Evidence: records on disk, the chain that they form, what they are about, and the labels that follow from them."""
