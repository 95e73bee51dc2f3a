// SPDX-License-Identifier: Apache-2.0

package mysqld

// The passwords of the product's accounts in tests. A log that shows one of them is easily found.
const (
	AdminPassword       = "secret-a"
	ReplicationPassword = "secret-r"
	DonorPassword       = "secret-d"
)

// ProductUsers are the statements that make the accounts of the product which clustering uses.
const ProductUsers = `create user 'moco-admin'@'%' identified by '` + AdminPassword + `';
grant all on *.* to 'moco-admin'@'%' with grant option;
create user 'moco-repl'@'%' identified by '` + ReplicationPassword + `';
grant replication slave, replication client on *.* to 'moco-repl'@'%';
create user 'moco-clone-donor'@'%' identified by '` + DonorPassword + `';
grant backup_admin, service_connection_admin on *.* to 'moco-clone-donor'@'%';
`
