"""From steps to target and seconds a step to time and money: how many devices pay."""
