// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/torpor-dev/torpor/local/cloud"
	"github.com/torpor-dev/torpor/local/loopback"
)

const headerTimeout = 10 * time.Second

func cloudCommand() *cobra.Command {
	var (
		c       cloud.Config
		address string
		port    int
	)
	cmd := &cobra.Command{
		Use:   "cloud",
		Short: "Run a simulated cloud that speaks the EC2 Query API",
		Example: `  # Machines take 5 seconds to start and to stop; their commands are run
  local cloud --dir ./cloud --port 5555 --start-latency 5s --stop-latency 5s --allow-commands

  # Count the calls so far, and inject a fault
  curl http://127.0.0.1:5555/_local/calls
  curl -d '{"action":"StartInstances","code":"InsufficientInstanceCapacity","times":1}' http://127.0.0.1:5555/_local/faults`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c.Log = slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), nil))
			network, release, err := reserveNetwork(cmd.Context(), c.Dir)
			if err != nil {
				return err
			}
			defer release()
			c.Network = network
			sim, err := cloud.New(c)
			if err != nil {
				return err
			}
			err = serveCloud(cmd.Context(), sim.HTTPHandler(), address, port, func(url string) {
				fmt.Fprintf(cmd.OutOrStdout(), "ready: %s\n", url)
			})
			return errors.Join(err, sim.Close())
		},
	}
	f := cmd.Flags()
	f.StringVar(&c.Dir, "dir", "cloud", "folder for the cloud's state; the state in an existing folder is used")
	f.StringVar(&address, "address", "127.0.0.1", "loopback address to serve on")
	f.IntVar(&port, "port", 0, "port to serve on; 0 selects a free port")
	f.DurationVar(&c.StartLatency, "start-latency", 3*time.Second, "how long a machine is pending")
	f.DurationVar(&c.StopLatency, "stop-latency", 3*time.Second, "how long a machine is stopping")
	f.IntVar(&c.PageSize, "page-size", 0, "maximum number of reservations in a page of DescribeInstances; 0 means EC2's maximum")
	f.BoolVar(&c.AllowCommands, "allow-commands", false, "run the commands in the user data of instances")
	f.StringSliceVar(&c.AccessKeys, "access-keys", nil, "accepted access key ids; if empty, all are accepted")
	f.StringVar(&c.Region, "region", "local-1", "the only region of the cloud")
	f.Float64Var(&c.RatePerSecond, "rate", 0, "calls per second and access key; 0 means no limit")
	f.IntVar(&c.Burst, "burst", 0, "number of calls allowed at once")
	f.BoolVar(&c.EC2Limits, "ec2-limits", false, "limit the calls of each access key as EC2 limits the calls of an account")
	f.DurationVar(&c.ReadLag, "read-lag", 0, "how long DescribeInstances still shows the old state after a change")
	return cmd
}

func serveCloud(ctx context.Context, h http.Handler, address string, port int, ready func(url string)) error {
	l, err := loopback.Listen(ctx, net.JoinHostPort(address, strconv.Itoa(port)))
	if err != nil {
		return fmt.Errorf("%w; set --address to a loopback address and --port to a free port", err)
	}
	server := &http.Server{Handler: h, ReadHeaderTimeout: headerTimeout}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	ready("http://" + l.Addr().String())
	if err := server.Serve(l); err != nil && !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve: %w", err)
	}
	return nil
}

const (
	firstNetwork = 77
	lastNetwork  = 126
	// networkFile is the file in a cloud's folder that contains the network of the cloud.
	networkFile = "network"
	// guard completes a network to the address and port on which its running cloud listens.
	guard = ".255.254:4242"
)

// reserveNetwork finds a loopback network that no other cloud on this machine uses. A later cloud in the same folder
// uses the same network, because the machines keep their addresses.
func reserveNetwork(ctx context.Context, dir string) (string, func(), error) {
	dir, err := filepath.Abs(dir)
	if err == nil {
		err = os.MkdirAll(dir, 0o700)
	}
	if err != nil {
		return "", nil, fmt.Errorf("create cloud folder: %w", err)
	}
	file := filepath.Join(dir, networkFile)
	if kept, err := os.ReadFile(file); err == nil {
		network := strings.TrimSpace(string(kept))
		release, held := holdNetwork(ctx, network)
		if !held {
			return "", nil, fmt.Errorf("expected the loopback network %s of the folder %s to be free, found it used by another cloud; stop that cloud", network, dir)
		}
		return network, release, nil
	}
	// Networks of existing folders are tried last, because the clouds of these folders may be restarted at any time.
	for _, mayBeKept := range []bool{false, true} {
		for _, network := range networksByLastUse() {
			if !mayBeKept && isNetworkKept(network) {
				continue
			}
			release, held := holdNetwork(ctx, network)
			if !held {
				continue
			}
			if err := keepNetwork(network, file); err != nil {
				release()
				return "", nil, fmt.Errorf("keep network: %w", err)
			}
			return network, release, nil
		}
	}
	return "", nil, fmt.Errorf("expected a free loopback network between 127.%d and 127.%d, found all networks used by other clouds; stop one of these clouds", firstNetwork, lastNetwork)
}

// holdNetwork locks a network. The lock is a listener, because the kernel closes it when the process ends.
func holdNetwork(ctx context.Context, network string) (release func(), held bool) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", network+guard)
	if err != nil {
		return nil, false
	}
	return func() { _ = l.Close() }, true
}

// keptBy returns the path of a link that records which folder uses a network. The link leads to the folder's
// networkFile.
func keptBy(network string) string {
	return filepath.Join(os.TempDir(), fmt.Sprintf("torpor-networks-%d", os.Getuid()), network)
}

// networksByLastUse returns all networks in the order in which they were last reserved, because the machines of a cloud
// that was just stopped may not have ended yet.
func networksByLastUse() []string {
	var networks []string
	lastUse := map[string]time.Time{}
	for i := firstNetwork; i <= lastNetwork; i++ {
		network := fmt.Sprintf("127.%d", i)
		networks = append(networks, network)
		if link, err := os.Lstat(keptBy(network)); err == nil {
			lastUse[network] = link.ModTime()
		}
	}
	slices.SortStableFunc(networks, func(a, b string) int { return lastUse[a].Compare(lastUse[b]) })
	return networks
}

// isNetworkKept reports whether an existing folder uses a network.
func isNetworkKept(network string) bool {
	kept, err := os.ReadFile(keptBy(network))
	return err == nil && strings.TrimSpace(string(kept)) == network
}

// keepNetwork records that a folder uses a network. The caller must have locked the network.
func keepNetwork(network, file string) error {
	link := keptBy(network)
	if err := os.Remove(link); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return errors.Join(os.WriteFile(file, []byte(network+"\n"), 0o600), os.MkdirAll(filepath.Dir(link), 0o700), os.Symlink(file, link))
}
