// SPDX-License-Identifier: Apache-2.0

package controller

const (
	// backupCreated means that a backup is complete in the bucket.
	backupCreated = "BackupCreated"
	// backupFailed means that a Job gave up making a backup.
	backupFailed = "BackupFailed"
	// backupImpossible means that the CronJob or the Job could not be created; the note gives the reason.
	backupImpossible = "BackupImpossible"
	// binlogGap means that binary logs were purged before they were copied, or that the new primary has fewer
	// transactions than the old one.
	binlogGap = "BinlogGap"
	// restored means that the data of a backup are loaded into the cluster.
	restored = "Restored"
	// restoreFailed means that the Job gave up restoring the cluster.
	restoreFailed = "RestoreFailed"
)
