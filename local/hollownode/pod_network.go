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
	"strconv"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// podNetwork gives Pods addresses of their own and answers at their ports, in a folder for each address with a socket for each port:
// ports of this machine may be taken, and API servers refuse its own addresses as those of endpoints.
type podNetwork struct {
	folder string

	mu   sync.Mutex
	last int
	pods map[types.UID]*podServer
}

// maxPodAddresses are those of 10.64.0.0/16.
const maxPodAddresses = 1<<16 - 2

type podServer struct {
	address string
	server  *http.Server
}

// addressPod returns the address of a Pod, a free one at first. Nodes that share a folder share its addresses.
func (n *podNetwork) addressPod(uid types.UID) (string, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if pod, isKnown := n.pods[uid]; isKnown {
		return pod.address, nil
	}
	if err := os.MkdirAll(n.folder, 0o700); err != nil {
		return "", fmt.Errorf("make pod network: %w", err)
	}
	for n.last < maxPodAddresses {
		n.last++
		address := fmt.Sprintf("10.64.%d.%d", n.last>>8, n.last&0xff)
		err := os.Mkdir(filepath.Join(n.folder, address), 0o700)
		if errors.Is(err, fs.ErrExist) {
			continue
		}
		if err != nil {
			return "", fmt.Errorf("take pod address: %w", err)
		}
		n.pods[uid] = &podServer{address: address}
		return address, nil
	}
	return "", fmt.Errorf("take pod address: expected a free one of %d, found none; use another folder", maxPodAddresses)
}

// servePod answers at the ports of a Pod with its name and labels, until it ends.
func (n *podNetwork) servePod(ctx context.Context, pod *corev1.Pod) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	s, isKnown := n.pods[pod.UID]
	if !isKnown || s.server != nil {
		return nil
	}
	s.server = &http.Server{ReadHeaderTimeout: requestLimit, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(map[string]any{"name": pod.Name, "labels": pod.Labels}) // A client that has gone away needs no answer.
	})}
	for _, c := range pod.Spec.Containers {
		for _, port := range c.Ports {
			listener, err := new(net.ListenConfig).Listen(ctx, "unix", filepath.Join(n.folder, s.address, strconv.Itoa(int(port.ContainerPort))))
			if err != nil {
				return fmt.Errorf("listen for pod %s: %w; a socket needs a short path, use a shorter folder", pod.Name, err)
			}
			go func() { _ = s.server.Serve(listener) }()
		}
	}
	return nil
}

// endPod answers no more, and breaks off what it was answering.
func (n *podNetwork) endPod(uid types.UID) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if s, isKnown := n.pods[uid]; isKnown && s.server != nil {
		_ = s.server.Close()
	}
	delete(n.pods, uid)
}
