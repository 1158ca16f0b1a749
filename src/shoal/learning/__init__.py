"""What learning consists of, apart from any paper: minibatches, optimisers, schedules, targets, replay."""
