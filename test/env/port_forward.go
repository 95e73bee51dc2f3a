// SPDX-License-Identifier: Apache-2.0

package env

import (
	"io"
	"net"
	"net/http"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/spdy"
)

// forwardPorts connects streams to ports of this machine, as a kubelet connects streams to ports of a Pod.
func forwardPorts(w http.ResponseWriter, r *http.Request) {
	if _, err := httpstream.Handshake(r, w, []string{portforward.PortForwardProtocolV1Name}); err != nil {
		return // Handshake has answered.
	}
	var forwards sync.WaitGroup
	connection := spdy.NewResponseUpgrader().UpgradeResponse(w, r, func(stream httpstream.Stream, replied <-chan struct{}) error {
		if stream.Headers().Get(corev1.StreamType) == corev1.StreamTypeData {
			forwards.Go(func() {
				<-replied
				forwardStream(stream)
			})
		}
		return nil
	})
	if connection == nil {
		return // The upgrader has answered.
	}
	<-connection.CloseChan()
	forwards.Wait()
}

func forwardStream(stream httpstream.Stream) {
	defer func() { _ = stream.Reset() }()
	target, err := (&net.Dialer{}).Dial("tcp", net.JoinHostPort("127.0.0.1", stream.Headers().Get(corev1.PortHeader)))
	if err != nil {
		return
	}
	defer func() { _ = target.Close() }()
	var copies sync.WaitGroup
	copies.Go(func() {
		_, _ = io.Copy(target, stream)
		_ = target.Close()
	})
	_, _ = io.Copy(stream, target)
	_ = stream.Close()
	copies.Wait()
}
