module whywait.invalid/labs/wire/leavers-go

go 1.19
