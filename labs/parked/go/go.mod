module whywait.invalid/labs/parked

go 1.19
