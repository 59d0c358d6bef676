module whywait.invalid/labs/controls/go-http

go 1.19
