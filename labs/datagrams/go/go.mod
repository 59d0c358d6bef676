module datagrams

go 1.19
