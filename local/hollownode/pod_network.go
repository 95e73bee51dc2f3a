// SPDX-License-Identifier: Apache-2.0

package hollownode

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// podNetwork gives each Pod a separate address, and answers at the Pod's ports. It has a folder for each address with a
// socket for each port. Real ports of this machine cannot be used, because they may be in use, and because API servers
// reject loopback addresses as endpoints.
type podNetwork struct {
	folder string

	mu   sync.Mutex
	last int
	pods map[types.UID]*podServer
}

// maxPodAddresses is the number of usable addresses in 10.64.0.0/16.
const maxPodAddresses = 1<<16 - 2

type podServer struct {
	address string
	server  *http.Server

	mu sync.Mutex
	// requests are the latest requests, which the log shows.
	requests []logLine
}

func (s *podServer) noteRequest(r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests = append(s.requests[max(0, len(s.requests)-maxLoggedRequests+1):], requestLine(time.Now(), r))
}

// addressPod returns the address of a Pod. The first call for a Pod reserves a free address. Nodes with the same folder
// share its addresses.
func (n *podNetwork) addressPod(uid types.UID) (string, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if pod, isKnown := n.pods[uid]; isKnown {
		return pod.address, nil
	}
	if err := os.MkdirAll(n.folder, 0o700); err != nil {
		return "", fmt.Errorf("create pod network: %w", err)
	}
	for n.last < maxPodAddresses {
		n.last++
		address := fmt.Sprintf("10.64.%d.%d", n.last>>8, n.last&0xff)
		err := os.Mkdir(filepath.Join(n.folder, address), 0o700)
		if errors.Is(err, fs.ErrExist) {
			continue
		}
		if err != nil {
			return "", fmt.Errorf("reserve pod address: %w", err)
		}
		n.pods[uid] = &podServer{address: address}
		return address, nil
	}
	return "", fmt.Errorf("reserve pod address: expected one of %d addresses to be free, found none; use another folder", maxPodAddresses)
}

// servePod starts servers at the ports of a Pod. They answer with the Pod's name and labels until the Pod ends.
func (n *podNetwork) servePod(ctx context.Context, pod *corev1.Pod) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	s, isKnown := n.pods[pod.UID]
	if !isKnown || s.server != nil {
		return nil
	}
	s.server = &http.Server{ReadHeaderTimeout: requestLimit, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.noteRequest(r)
		w.Header().Set("Content-Type", "application/json")
		// A client that has disconnected needs no response.
		_ = json.NewEncoder(w).Encode(map[string]any{"name": pod.Name, "labels": pod.Labels})
	})}
	for _, c := range pod.Spec.Containers {
		for _, port := range c.Ports {
			listener, err := new(net.ListenConfig).Listen(ctx, "unix", filepath.Join(n.folder, s.address, strconv.Itoa(int(port.ContainerPort))))
			if err != nil {
				return fmt.Errorf("listen for pod %s: %w; the path of a socket must be short; use a shorter folder", pod.Name, err)
			}
			go func() { _ = s.server.Serve(listener) }()
		}
	}
	return nil
}

// listRequests returns the latest requests that a Pod has answered.
func (n *podNetwork) listRequests(uid types.UID) []logLine {
	n.mu.Lock()
	s, isKnown := n.pods[uid]
	n.mu.Unlock()
	if !isKnown {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.requests)
}

// endPod stops the servers of a Pod, and interrupts open requests.
func (n *podNetwork) endPod(uid types.UID) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if s, isKnown := n.pods[uid]; isKnown && s.server != nil {
		_ = s.server.Close()
	}
	delete(n.pods, uid)
}
