"""How a pack of trials is trained, look by look; the engines take the steps."""
