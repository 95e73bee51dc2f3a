// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"fmt"
	"net/url"
	"strconv"

	"go.etcd.io/etcd/server/v3/embed"
)

// startEtcd returns when etcd serves. Data is not synced to disk: a kill of the process keeps it,
// a power cut of the laptop may not.
func startEtcd(ctx context.Context, c Config, p servingPorts) (*embed.Etcd, string, error) {
	client := url.URL{Scheme: "http", Host: "127.0.0.1:" + strconv.Itoa(p.EtcdClient)}
	peer := url.URL{Scheme: "http", Host: "127.0.0.1:" + strconv.Itoa(p.EtcdPeer)}
	cfg := embed.NewConfig()
	cfg.Dir = c.path("etcd")
	cfg.ListenClientUrls, cfg.AdvertiseClientUrls = []url.URL{client}, []url.URL{client}
	cfg.ListenPeerUrls, cfg.AdvertisePeerUrls = []url.URL{peer}, []url.URL{peer}
	cfg.InitialCluster = "default=" + peer.String()
	// Syncs would make most of the start, and a kill of the process loses nothing without them.
	cfg.UnsafeNoFsync = true
	cfg.LogLevel = "error"
	e, err := embed.StartEtcd(cfg)
	if err != nil {
		return nil, "", fmt.Errorf("start etcd: %w", err)
	}
	select {
	case <-e.Server.ReadyNotify():
		return e, client.String(), nil
	case err := <-e.Err():
		return nil, "", fmt.Errorf("start etcd: %w", err)
	case <-ctx.Done():
		e.Close()
		return nil, "", fmt.Errorf("start etcd: %w", context.Cause(ctx))
	}
}
