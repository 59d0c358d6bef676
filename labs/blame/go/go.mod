module whywait.invalid/labs/blame/go

go 1.19
