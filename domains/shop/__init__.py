"""The domain `shop`: an online store, generated from seeds."""
