// SPDX-License-Identifier: Apache-2.0

package csr

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"net/netip"
	"regexp"
	"sort"
	"strings"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
)

// isPermitted decides independently, without any function of the package under test. It assumes an undecided request
// of a valid age, and the inventory of this test.
func isPermitted(req *certificatesv1.CertificateSigningRequest, inv NodeInventory) bool {
	block, _ := pem.Decode(req.Spec.Request)
	if block == nil || strings.TrimSpace(string(pem.EncodeToMemory(block))) != strings.TrimSpace(string(req.Spec.Request)) {
		return false
	}
	csr, err := x509.ParseCertificateRequest(block.Bytes)
	if block.Type != "CERTIFICATE REQUEST" || len(block.Headers) > 0 || err != nil || csr.CheckSignature() != nil ||
		strings.Contains(csr.SignatureAlgorithm.String(), "SHA1") {
		return false
	}
	outer := elements(block.Bytes)
	if len(outer) != 1 || len(elements(outer[0].body)) != 3 {
		return false
	}
	subject := regexp.MustCompile(`^(CN=system:node:[^,+]+,O=system:nodes|O=system:nodes,CN=system:node:[^,+]+)$`)
	node, found := strings.CutPrefix(csr.Subject.CommonName, "system:node:")
	if !found || !subject.MatchString(csr.Subject.ToRDNSequence().String()) || len(csr.Subject.Names) != 2 || !isGoodKey(csr.PublicKey) {
		return false
	}
	machine := soleMachine(node, inv)
	if machine == nil {
		return false
	}
	usages := joinSorted(req.Spec.Usages)
	if req.Spec.SignerName == "kubernetes.io/kubelet-serving" {
		return (usages == "digital signature|server auth" || usages == "digital signature|key encipherment|server auth") &&
			joinSorted(req.Spec.Groups) == "system:authenticated|system:nodes" &&
			req.Spec.Username == csr.Subject.CommonName && namesOnly(csr, machine)
	}
	for _, n := range inv.Nodes {
		if n.Name == node && n.HasReported {
			return false
		}
	}
	if last, ok := inv.LastApprovals[node]; ok && inv.Now.Before(last.Add(5*time.Minute)) {
		return false
	}
	if inv.ClientsFrom.IsZero() || inv.ClientsFrom.After(inv.Now) {
		return false
	}
	return (usages == "client auth|digital signature" || usages == "client auth|digital signature|key encipherment") &&
		mayBootstrap(req.Spec.Username, joinSorted(req.Spec.Groups), machine.ControlPlane) && plainAttributes(csr) && len(csr.Extensions) == 0
}

func isGoodKey(key any) bool {
	switch key := key.(type) {
	case *rsa.PublicKey:
		return key.Size() >= 256 && key.Size() <= 1024
	case *ecdsa.PublicKey:
		return key.Params().BitSize >= 256
	case ed25519.PublicKey:
		return true
	}
	return false
}

func soleMachine(node string, inv NodeInventory) *KnownMachine {
	uid := map[string]string{}
	for _, n := range inv.Nodes {
		uid[n.Name] = string(n.UID)
	}
	var sole *KnownMachine
	for i, m := range inv.Machines {
		if !strings.EqualFold(strings.TrimSuffix(m.NodeName, "."), node) {
			continue
		}
		if sole != nil {
			return nil
		}
		sole = &inv.Machines[i]
	}
	if sole == nil || sole.Deleting || uid[node] == "" || (sole.NodeUID != "" && string(sole.NodeUID) != uid[node]) {
		return nil
	}
	return sole
}

func joinSorted[S ~string](values []S) string {
	words := make([]string, len(values))
	for i, value := range values {
		words[i] = string(value)
	}
	sort.Strings(words)
	return strings.Join(words, "|")
}

func mayBootstrap(user, groups string, controlPlane bool) bool {
	if user == mcoUser {
		return groups == "system:authenticated|system:serviceaccounts|"+mcoGroup || controlPlane && groups == "system:authenticated|"+mcoGroup
	}
	return regexp.MustCompile(`^system:bootstrap:[a-z0-9]{6}$`).MatchString(user) &&
		regexp.MustCompile(`^system:authenticated\|system:bootstrappers(\|system:bootstrappers:[^|]+)*$`).MatchString(groups)
}

// namesOnly checks the DER of subjectAltName.
func namesOnly(csr *x509.CertificateRequest, machine *KnownMachine) bool {
	if !plainAttributes(csr) || len(csr.Extensions) != 1 || csr.Extensions[0].Id.String() != "2.5.29.17" {
		return false
	}
	list := elements(csr.Extensions[0].Value)
	if len(list) != 1 || len(elements(list[0].body)) == 0 {
		return false
	}
	for _, name := range elements(list[0].body) {
		if !ownsName(machine, name) {
			return false
		}
	}
	return true
}

func ownsName(machine *KnownMachine, name element) bool {
	for _, address := range machine.Addresses {
		ip, err := netip.ParseAddr(address.Address)
		if name.tag == tagDNS && err != nil && strings.EqualFold(strings.TrimSuffix(string(name.body), "."), address.Address) {
			return true
		}
		if got, ok := netip.AddrFromSlice(name.body); name.tag == tagIP && err == nil && ok && got.Unmap() == ip {
			return true
		}
	}
	return false
}

// plainAttributes allows no attribute, or one extensionRequest with extensions of two or three parts each.
func plainAttributes(csr *x509.CertificateRequest) bool {
	info := elements(csr.RawTBSCertificateRequest)
	parts := elements(info[0].body)
	if len(parts) != 4 || !bytes.Equal(parts[0].whole, []byte{0x02, 0x01, 0x00}) {
		return false
	}
	attributes := elements(parts[3].body)
	if len(attributes) == 0 {
		return true
	}
	fields := elements(attributes[0].body)
	if len(attributes) != 1 || len(fields) != 2 || !bytes.Equal(fields[0].whole, oid(1, 2, 840, 113549, 1, 9, 14)) {
		return false
	}
	values := elements(fields[1].body)
	if len(values) != 1 {
		return false
	}
	for _, extension := range elements(values[0].body) {
		if n := len(elements(extension.body)); n < 2 || n > 3 {
			return false
		}
	}
	return true
}

// element is one DER element.
type element struct {
	tag         byte
	body, whole []byte
}

// elements splits DER into its elements; nil if it is malformed or empty.
func elements(der []byte) []element {
	var all []element
	for len(der) > 0 {
		if len(der) < 2 {
			return nil
		}
		head, size := 2, int(der[1])
		if size >= 0x80 {
			octets := size & 0x7f
			if octets == 0 || octets > 3 || len(der) < 2+octets {
				return nil
			}
			head, size = 2+octets, 0
			for _, octet := range der[2 : 2+octets] {
				size = size<<8 | int(octet)
			}
		}
		if len(der) < head+size {
			return nil
		}
		all = append(all, element{der[0], der[head : head+size], der[:head+size]})
		der = der[head+size:]
	}
	return all
}
