module whywait.invalid/labs/waits

go 1.19
