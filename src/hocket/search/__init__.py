"""Plans that are found rather than written: what suits one cluster and one size better than what is shipped."""
