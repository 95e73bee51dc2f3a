// SPDX-License-Identifier: Apache-2.0

package baremetal

import (
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"net"
	"testing"

	"github.com/torpor-dev/torpor/actuator"
)

// ipmiDouble is a management controller that speaks IPMI 2.0, written from its specification. It has the flaws of old
// controllers: it loses every fifth packet, sends unrequested packets, sends each answer twice, and has room for few
// sessions.
type ipmiDouble struct {
	conn net.PacketConn
	m    *simulatedMachine
	// suite is the only cipher suite that the controller supports.
	suite cipherSuite

	packets int
	session *ipmiSession
	// proof is the code that the console must send in its third message.
	proof, ownRandom, remoteRandom, guid []byte
}

func startIPMI(t *testing.T, m *simulatedMachine, suite cipherSuite) *ipmiDouble {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	d := &ipmiDouble{conn: conn, m: m, suite: suite, guid: bytes.Repeat([]byte{7}, 16)}
	t.Cleanup(func() { _ = conn.Close() })
	go d.serve()
	return d
}

func (d *ipmiDouble) serve() {
	buffer := make([]byte, maxPacketBytes)
	for {
		n, from, err := d.conn.ReadFrom(buffer)
		if err != nil {
			return
		}
		d.packets++
		if d.packets%5 == 0 || d.m.isHanging() {
			continue
		}
		if d.packets%3 == 0 {
			_, _ = d.conn.WriteTo([]byte{6, 0, 0xff, 7, 6, 0xc0}, from)
			_, _ = d.conn.WriteTo(bytes.Repeat([]byte{0xff}, 40), from)
		}
		if answer := d.answer(bytes.Clone(buffer[:n])); answer != nil {
			_, _ = d.conn.WriteTo(answer, from)
			_, _ = d.conn.WriteTo(answer, from) // Real controllers answer twice if a request was repeated too early.
		}
	}
}

// answer returns the packet that answers another one, or nil.
func (d *ipmiDouble) answer(packet []byte) []byte {
	if len(packet) < headerBytes {
		return nil
	}
	size := int(binary.LittleEndian.Uint16(packet[14:16]))
	payload := packet[headerBytes:min(len(packet), headerBytes+size)]
	plain := &ipmiSession{suite: d.suite}
	reply := func(kind byte, content []byte) []byte {
		out, _ := plain.wrap(kind, content)
		return out
	}
	switch packet[5] & 0x3f {
	case payloadOpenSession:
		return reply(payloadOpenedSession, d.openSession(payload))
	case payloadRAKP1:
		return reply(payloadRAKP2, d.challenge(payload))
	case payloadRAKP3:
		return reply(payloadRAKP4, d.admit(payload))
	}
	if d.session == nil || !d.session.isOpen {
		return nil
	}
	request, ok := d.session.unwrap(payloadIPMI, packet)
	if !ok || len(request) < 7 {
		return nil
	}
	code, data := d.carryOut(request[1]>>2, request[5], request[6:len(request)-1])
	head := []byte{0x81, (request[1]>>2 + 1) << 2}
	tail := append([]byte{0x20, request[4], request[5], code}, data...)
	message := append(append(append(head, checksum(head...)), tail...), checksum(tail...))
	out, _ := d.session.wrap(payloadIPMI, message)
	return out
}

func (d *ipmiDouble) openSession(payload []byte) []byte {
	const noSuchSuite = 0x11
	if payload[12] != d.suite.authentication {
		return append([]byte{payload[0], noSuchSuite, 0, 0}, payload[4:8]...)
	}
	d.session = &ipmiSession{suite: d.suite}
	copy(d.session.remote[:], payload[4:8])
	_, _ = rand.Read(d.session.own[:])
	return append(bytes.Join([][]byte{{payload[0], 0, privilegeOperator, 0}, payload[4:8], d.session.own[:]}, nil), d.suite.algorithms()...)
}

func (d *ipmiDouble) challenge(payload []byte) []byte {
	const noSuchUser = 0x0d
	user := string(payload[28:])
	if d.session == nil {
		return nil
	}
	if user != goodUser {
		return append([]byte{payload[0], noSuchUser, 0, 0}, d.session.remote[:]...)
	}
	d.remoteRandom, d.ownRandom = bytes.Clone(payload[8:24]), make([]byte, randomBytes)
	_, _ = rand.Read(d.ownRandom)
	name, key := append([]byte{payload[24], byte(len(user))}, user...), padPassword(goodPassword)
	console, own := d.session.remote[:], d.session.own[:]
	code := d.suite.sign(key, console, own, d.remoteRandom, d.ownRandom, d.guid, name)
	d.proof = d.suite.sign(key, d.ownRandom, console, name)
	session := d.suite.sign(key, d.remoteRandom, d.ownRandom, name)
	d.session.integrityKey = d.suite.sign(session, bytes.Repeat([]byte{1}, keyMaterialBytes))
	d.session.privacyKey = d.suite.sign(session, bytes.Repeat([]byte{2}, keyMaterialBytes))[:16]
	d.guid = bytes.Clone(d.guid)
	return bytes.Join([][]byte{{payload[0], 0, 0, 0}, console, d.ownRandom, d.guid, code}, nil)
}

func (d *ipmiDouble) admit(payload []byte) []byte {
	const badProof = 0x0f
	if d.session == nil {
		return nil
	}
	if !bytes.Equal(payload[8:], d.proof) {
		return append([]byte{payload[0], badProof, 0, 0}, d.session.remote[:]...)
	}
	name := append([]byte{roleOperator, byte(len(goodUser))}, goodUser...)
	session := d.suite.sign(padPassword(goodPassword), d.remoteRandom, d.ownRandom, name)
	d.session.isOpen = true
	return bytes.Join([][]byte{{payload[0], 0, 0, 0}, d.session.remote[:], d.suite.sign(session, d.remoteRandom, d.session.own[:], d.guid)[:d.suite.codeBytes]}, nil)
}

// carryOut executes a command.
func (d *ipmiDouble) carryOut(function, command byte, data []byte) (code byte, answer []byte) {
	const noSuchCommand = 0xc1
	switch {
	case function == functionApplication && command == commandSetPrivilege:
		return codeDone, []byte{privilegeOperator}
	case function == functionApplication && command == commandCloseSession:
		return codeDone, nil
	case function == functionChassis && command == commandChassisStatus:
		failed := d.m.failure(look)
		if d.m.look() != actuator.Stopped {
			return failed.code, []byte{1, 0, 0}
		}
		return failed.code, []byte{0, 0, 0}
	case function == functionChassis && command == commandChassisControl && len(data) == 1:
		order := map[byte]powerOrder{0: cutPower, 1: turnOn, 5: shutDown}[data[0]]
		if failed := d.m.failure(order); failed.code != codeDone {
			return failed.code, nil
		}
		if !d.m.take(order) {
			return codeNotNow, nil
		}
		return codeDone, nil
	default:
		return noSuchCommand, nil
	}
}
