module mapper

go 1.19
