// SPDX-License-Identifier: Apache-2.0

package baremetal

import (
	"bytes"
	"context"
	"crypto"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"math"
	"net"
	"time"
)

// Section numbers refer to the specification, IPMI v2.0 revision 1.1.
const (
	payloadIPMI          = 0x00
	payloadOpenSession   = 0x10
	payloadOpenedSession = 0x11
	payloadRAKP1         = 0x12
	payloadRAKP2         = 0x13
	payloadRAKP3         = 0x14
	payloadRAKP4         = 0x15

	privilegeOperator = 3
	// roleOperator makes the controller find the user by name only (13.20).
	roleOperator = 0x10 | privilegeOperator

	headerBytes      = 16
	randomBytes      = 16
	maxUserBytes     = 16
	maxPasswordBytes = 20
	// maxPacketBytes limits the size of a response. Valid responses are smaller.
	maxPacketBytes = 1024
	// shareOfSuite is the number of packets that may be lost before another suite is tried.
	shareOfSuite = 3
	// maxStrayPackets is the maximum number of packets that are skipped because they answer another request.
	maxStrayPackets = 64
	// keyMaterialBytes is the length of the constants from which keys are derived (13.32).
	keyMaterialBytes = 20
)

// cipherSuite is a row of table 22-20 with authentication, integrity and confidentiality. Rows that lack one of them
// are not used.
type cipherSuite struct {
	authentication, integrity byte
	newHash                   func() hash.Hash
	// codeBytes is the length to which the codes of packets are truncated.
	codeBytes int
}

const confidentialityAES = 1

// cipherSuites returns suite 17 and, for older controllers, suite 3. The known attacks on SHA-1 do not affect keyed
// codes.
func cipherSuites() []cipherSuite {
	return []cipherSuite{
		{authentication: 3, integrity: 4, newHash: crypto.SHA256.New, codeBytes: 16},
		{authentication: 1, integrity: 1, newHash: crypto.SHA1.New, codeBytes: 12},
	}
}

func (s cipherSuite) sign(key []byte, parts ...[]byte) []byte {
	mac := hmac.New(s.newHash, key)
	for _, part := range parts {
		mac.Write(part)
	}
	return mac.Sum(nil)
}

// algorithms returns the proposals of an Open Session Request (13.17), which the response must repeat.
func (s cipherSuite) algorithms() []byte {
	return []byte{
		0, 0, 0, 8, s.authentication, 0, 0, 0,
		1, 0, 0, 8, s.integrity, 0, 0, 0,
		2, 0, 0, 8, confidentialityAES, 0, 0, 0,
	}
}

var (
	errNotIPMI         = errors.New("the answer is not an IPMI message")
	errSuiteRefused    = errors.New("the BMC does not support the cipher suite")
	errLoginRefused    = errors.New("the BMC rejects the login")
	errPrivilegeDenied = errors.New("the user may not be an operator")
	errBusy            = errors.New("the BMC has no room for another session")
)

// ipmiSession is a session of IPMI 2.0 with a management controller.
type ipmiSession struct {
	conn  net.Conn
	suite cipherSuite
	// own and remote are the IDs that the two sides have assigned to the session.
	own, remote [4]byte
	// integrityKey and privacyKey are K1 and K2.
	integrityKey, privacyKey []byte
	isOpen                   bool
	// tag is sent in each message of the login, and repeated in its response.
	tag      byte
	sequence uint32
	command  byte
	resend   time.Duration
}

// openSession logs in with the first suite that the controller supports. Some controllers refuse unsupported suites,
// and others do not respond. Each suite therefore gets a share of the time, and a larger share in the next round. The
// context must have a deadline.
func openSession(ctx context.Context, conn net.Conn, l login, suites []cipherSuite, resend time.Duration) (*ipmiSession, error) {
	tag := byte(0)
	for share := shareOfSuite * resend; ; share *= 2 {
		refused := 0
		for _, suite := range suites {
			tag++ // A late refusal of one suite must not be taken for a refusal of the next suite.
			s := &ipmiSession{conn: conn, suite: suite, resend: resend, tag: tag}
			if _, err := rand.Read(s.own[:]); err != nil {
				return nil, fmt.Errorf("create an id: %w", err)
			}
			limited, cancel := context.WithTimeout(ctx, share)
			err := s.login(limited, l.user, l.password)
			isSilent := limited.Err() != nil
			cancel()
			switch {
			case ctx.Err() != nil:
				return nil, context.Cause(ctx)
			case errors.Is(err, errSuiteRefused):
				refused++
			case err == nil || !isSilent:
				return s, err
			}
		}
		if refused == len(suites) {
			return nil, errSuiteRefused
		}
	}
}

func (s *ipmiSession) login(ctx context.Context, user, password string) error {
	opened, err := s.exchange(ctx, payloadOpenSession, payloadOpenedSession, bytes.Join([][]byte{{s.tag, privilegeOperator, 0, 0}, s.own[:], s.suite.algorithms()}, nil))
	if err != nil {
		return err
	}
	// The login is not sent to a controller that selects other algorithms, such as no encryption.
	if len(opened) < 36 || !bytes.Equal(opened[4:8], s.own[:]) || !isSameSuite(opened[12:36], s.suite) {
		return errNotIPMI
	}
	copy(s.remote[:], opened[8:12])
	var ownRandom [randomBytes]byte
	if _, err := rand.Read(ownRandom[:]); err != nil {
		return fmt.Errorf("create a random number: %w", err)
	}
	length := byte(len(user) & math.MaxUint8) // readLogin has checked the length.
	name := append([]byte{roleOperator, length}, user...)
	second, err := s.exchange(ctx, payloadRAKP1, payloadRAKP2, bytes.Join([][]byte{{s.tag, 0, 0, 0}, s.remote[:], ownRandom[:], {roleOperator, 0, 0, length}, []byte(user)}, nil))
	if err != nil {
		return err
	}
	size := s.suite.newHash().Size()
	if len(second) < 40+size || !bytes.Equal(second[4:8], s.own[:]) {
		return errNotIPMI
	}
	key, remoteRandom, guid := padPassword(password), second[8:24], second[24:40]
	if !hmac.Equal(second[40:40+size], s.suite.sign(key, s.own[:], s.remote[:], ownRandom[:], remoteRandom, guid, name)) {
		return errLoginRefused // A wrong signature is the only sign of a wrong password.
	}
	session := s.suite.sign(key, ownRandom[:], remoteRandom, name)
	proof := s.suite.sign(key, remoteRandom, s.own[:], name)
	fourth, err := s.exchange(ctx, payloadRAKP3, payloadRAKP4, bytes.Join([][]byte{{s.tag, 0, 0, 0}, s.remote[:], proof}, nil))
	if err != nil {
		return err
	}
	if len(fourth) < 8+s.suite.codeBytes || !bytes.Equal(fourth[4:8], s.own[:]) ||
		!hmac.Equal(fourth[8:8+s.suite.codeBytes], s.suite.sign(session, ownRandom[:], s.remote[:], guid)[:s.suite.codeBytes]) {
		return errLoginRefused
	}
	s.integrityKey = s.suite.sign(session, bytes.Repeat([]byte{1}, keyMaterialBytes))
	s.privacyKey = s.suite.sign(session, bytes.Repeat([]byte{2}, keyMaterialBytes))[:aes.BlockSize]
	s.isOpen = true
	return nil
}

// isSameSuite compares only the algorithms; the bytes between them are reserved.
func isSameSuite(found []byte, s cipherSuite) bool {
	return found[4] == s.authentication && found[12] == s.integrity && found[20] == confidentialityAES
}

// padPassword returns the key of a user (13.31).
func padPassword(password string) []byte {
	key := make([]byte, maxPasswordBytes)
	copy(key, password)
	return key
}

// run executes a command, and returns its completion code and data.
func (s *ipmiSession) run(ctx context.Context, function, command byte, data ...byte) (code byte, answer []byte, err error) {
	s.command = (s.command + 1) & 0x3f
	const controller, console = 0x20, 0x81
	request := []byte{controller, function << 2, checksum(controller, function<<2)}
	tail := append([]byte{console, s.command << 2, command}, data...)
	request = append(append(request, tail...), checksum(tail...))
	found, err := s.exchangeMatching(ctx, payloadIPMI, payloadIPMI, request, func(payload []byte) bool {
		return len(payload) >= 8 && payload[1]>>2 == function+1 && payload[4]>>2 == s.command && payload[5] == command &&
			checksum(payload[:2]...) == payload[2] && checksum(payload[3:len(payload)-1]...) == payload[len(payload)-1]
	})
	if err != nil {
		return 0, nil, err
	}
	return found[6], found[7 : len(found)-1], nil
}

func checksum(bytes ...byte) (sum byte) {
	for _, b := range bytes {
		sum -= b
	}
	return sum
}

// exchange sends a message of the login, and returns the response. It returns an error if the response has the status
// of an error (13.24).
func (s *ipmiSession) exchange(ctx context.Context, kind, answerKind byte, payload []byte) ([]byte, error) {
	answer, err := s.exchangeMatching(ctx, kind, answerKind, payload, func(answer []byte) bool { return len(answer) >= 8 && answer[0] == payload[0] })
	if err != nil {
		return nil, err
	}
	switch answer[1] {
	case 0x00:
		return answer, nil
	case 0x01, 0x0b:
		return nil, errBusy
	case 0x04, 0x05, 0x06, 0x07, 0x10, 0x11:
		return nil, errSuiteRefused
	case 0x09, 0x0a:
		return nil, errPrivilegeDenied
	case 0x0d, 0x0f:
		return nil, errLoginRefused
	default:
		return nil, errNotIPMI
	}
}

// exchangeMatching repeats a request until a matching response arrives, because packets may be lost.
func (s *ipmiSession) exchangeMatching(ctx context.Context, kind, answerKind byte, payload []byte, matches func([]byte) bool) ([]byte, error) {
	stop := context.AfterFunc(ctx, func() { _ = s.conn.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	buffer := make([]byte, maxPacketBytes)
	for strays := 0; strays < maxStrayPackets; {
		packet, err := s.wrap(kind, payload)
		if err != nil {
			return nil, err
		}
		switch err := s.send(ctx, packet); {
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		case isTimeout(err):
			continue // The manager was delayed, not the controller, so the packet is sent again.
		case err != nil:
			return nil, err
		}
		for ; strays < maxStrayPackets; strays++ {
			n, err := s.conn.Read(buffer)
			if ctx.Err() != nil {
				return nil, context.Cause(ctx)
			}
			if isTimeout(err) {
				break
			}
			if err != nil {
				return nil, fmt.Errorf("read an answer: %w", err)
			}
			if answer, ok := s.unwrap(answerKind, buffer[:n]); ok && matches(answer) {
				return answer, nil
			}
		}
	}
	return nil, errNotIPMI
}

// send sends a packet, and sets the deadline for its response.
func (s *ipmiSession) send(ctx context.Context, packet []byte) error {
	limited, cancel := context.WithTimeout(ctx, s.resend)
	defer cancel()
	deadline, _ := limited.Deadline()
	if err := s.conn.SetDeadline(deadline); err != nil {
		return fmt.Errorf("set a deadline: %w", err)
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if _, err := s.conn.Write(packet); err != nil {
		return fmt.Errorf("send a request: %w", err)
	}
	return nil
}

func isTimeout(err error) bool {
	network, ok := errors.AsType[net.Error](err)
	return ok && network.Timeout()
}

// wrap builds a packet from a payload. In an open session, the packet is encrypted and signed (13.6).
func (s *ipmiSession) wrap(kind byte, payload []byte) ([]byte, error) {
	packet := []byte{6, 0, 0xff, 7, 6, kind, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}
	if s.isOpen {
		var err error
		if payload, err = encrypt(s.privacyKey, payload); err != nil {
			return nil, err
		}
		s.sequence++
		packet[5] |= 0xc0
		copy(packet[6:10], s.remote[:])
		binary.LittleEndian.PutUint32(packet[10:14], s.sequence)
	}
	// Requests are short, so their length fits into 16 bits.
	binary.LittleEndian.PutUint16(packet[14:16], uint16(len(payload)&math.MaxUint16))
	packet = append(packet, payload...)
	if !s.isOpen {
		return packet, nil
	}
	padding := (4 - (len(packet)-4+2)%4) % 4 // The signed part must be a multiple of four bytes.
	packet = append(packet, bytes.Repeat([]byte{0xff}, padding)...)
	packet = append(packet, byte(padding), 7)
	return append(packet, s.suite.sign(s.integrityKey, packet[4:])[:s.suite.codeBytes]...), nil
}

// unwrap returns the payload of a packet if the packet belongs to this session.
func (s *ipmiSession) unwrap(kind byte, packet []byte) ([]byte, bool) {
	if len(packet) < headerBytes || packet[0] != 6 || packet[3] != 7 || packet[4] != 6 || packet[5]&0x3f != kind {
		return nil, false
	}
	size := int(binary.LittleEndian.Uint16(packet[14:16]))
	if size > len(packet)-headerBytes {
		return nil, false
	}
	payload := packet[headerBytes : headerBytes+size]
	if !s.isOpen {
		return payload, packet[5]&0xc0 == 0
	}
	signed := len(packet) - s.suite.codeBytes
	if packet[5]&0xc0 != 0xc0 || !bytes.Equal(packet[6:10], s.own[:]) || signed < headerBytes+size ||
		!hmac.Equal(packet[signed:], s.suite.sign(s.integrityKey, packet[4:signed])[:s.suite.codeBytes]) {
		return nil, false
	}
	return decrypt(s.privacyKey, payload)
}

// encrypt uses AES-CBC-128 with a random initialization vector and the confidentiality trailer (13.29).
func encrypt(key, text []byte) ([]byte, error) {
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, fmt.Errorf("create the cipher: %w", err)
	}
	padding := (aes.BlockSize - (len(text)+1)%aes.BlockSize) % aes.BlockSize
	padded := bytes.Clone(text)
	for i := range padding {
		padded = append(padded, byte(i+1))
	}
	padded = append(padded, byte(padding))
	var start [aes.BlockSize]byte
	if _, err := rand.Read(start[:]); err != nil {
		return nil, fmt.Errorf("create a random start: %w", err)
	}
	cipher.NewCBCEncrypter(block, start[:]).CryptBlocks(padded, padded)
	return append(start[:], padded...), nil
}

func decrypt(key, data []byte) ([]byte, bool) {
	block, err := aes.NewCipher(key)
	if err != nil || len(data) < 2*aes.BlockSize || len(data)%aes.BlockSize != 0 {
		return nil, false
	}
	text := make([]byte, len(data)-aes.BlockSize)
	cipher.NewCBCDecrypter(block, data[:aes.BlockSize]).CryptBlocks(text, data[aes.BlockSize:])
	padding := int(text[len(text)-1])
	if padding >= len(text) {
		return nil, false
	}
	return text[:len(text)-1-padding], true
}
