"""How a pack of trials is trained, evaluation by evaluation; the engines take the steps."""
