// SPDX-License-Identifier: Apache-2.0

package page

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
	"unicode"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/torpor-dev/torpor/internal/stop/savings"
)

const (
	// maxPriceBytes limits the size of a key's value, maxPrice limits a price, and maxCurrency limits the length of a
	// currency.
	maxPriceBytes, maxPrice, maxCurrency = 1 << 10, 1e9, 12
	bytesPerGiB                          = 1 << 30
)

// prices contains the settings for the savings tab. A nil price is unknown.
type prices struct {
	machineHour, cpuHour, gibHour *float64
	// currency is appended to each amount. Savings are summed by the values of the label ownerLabel, unless it is
	// empty.
	currency, ownerLabel string
}

// readPrices reads the keys of a ConfigMap that is mounted as a folder. If the folder or a key is missing, the settings
// keep their defaults.
func readPrices(folder string) (prices, error) {
	var p prices
	if folder == "" {
		return p, nil
	}
	keys, err := os.ReadDir(folder)
	if errors.Is(err, fs.ErrNotExist) {
		return p, nil
	}
	if err != nil {
		return p, fmt.Errorf("read the prices: %w", err)
	}
	for _, key := range keys {
		if strings.HasPrefix(key.Name(), ".") { // The kubelet stores the keys in folders with such names.
			continue
		}
		text, err := readKey(filepath.Join(folder, key.Name()))
		if err == nil {
			p, err = p.with(key.Name(), text)
		}
		if err != nil {
			return prices{}, fmt.Errorf("%s: %w", key.Name(), err)
		}
	}
	return p, nil
}

func readKey(path string) (string, error) {
	file, err := os.Open(path)
	if err != nil {
		return "", fmt.Errorf("read the value: %w", err)
	}
	defer func() { _ = file.Close() }()
	text, err := io.ReadAll(io.LimitReader(file, maxPriceBytes+1))
	switch {
	case err != nil:
		return "", fmt.Errorf("read the value: %w", err)
	case len(text) > maxPriceBytes:
		return "", fmt.Errorf("expected at most %d bytes, found more", maxPriceBytes)
	default:
		return string(bytes.TrimSpace(text)), nil
	}
}

// with returns a copy of the settings in which one key has the parsed value.
func (p prices) with(key, text string) (_ prices, err error) {
	switch key {
	case "machineHour":
		p.machineHour, err = parsePrice(text)
	case "cpuHour":
		p.cpuHour, err = parsePrice(text)
	case "gibHour":
		p.gibHour, err = parsePrice(text)
	case "currency":
		p.currency, err = text, checkCurrency(text)
	case "ownerLabel":
		p.ownerLabel = text
		if problems := validation.IsQualifiedName(text); len(problems) > 0 {
			err = fmt.Errorf("expected the name of a label, found %.40q: %s", text, problems[0])
		}
	default:
		err = errors.New("expected one of the keys machineHour, cpuHour, gibHour, currency and ownerLabel, found another key")
	}
	return p, err
}

func parsePrice(text string) (*float64, error) {
	price, err := strconv.ParseFloat(text, 64)
	if err != nil || math.IsNaN(price) || price < 0 || price > maxPrice {
		return nil, fmt.Errorf("expected a price such as 0.38, found %.40q", text)
	}
	return &price, nil
}

func checkCurrency(text string) error {
	isOdd := func(r rune) bool { return !unicode.IsLetter(r) && !unicode.Is(unicode.Sc, r) }
	if text == "" || len(text) > maxCurrency || strings.ContainsFunc(text, isOdd) {
		return fmt.Errorf("expected a currency such as EUR, found %.40q", text)
	}
	return nil
}

// areSet reports whether any price is set.
func (p prices) areSet() bool { return p.machineHour != nil || p.cpuHour != nil || p.gibHour != nil }

// pricedResource is a resource with its price per hour and the saved quantity.
type pricedResource struct {
	unit    string
	price   *float64
	seconds float64
}

// resourcesOf returns the resources in a sum, in display order.
func (p prices) resourcesOf(t savings.Totals) []pricedResource {
	return []pricedResource{
		{"machine-hour", p.machineHour, t.MachineSeconds},
		{"CPU-hour", p.cpuHour, t.CPUSeconds},
		{"GiB-hour", p.gibHour, t.MemoryByteSeconds / bytesPerGiB},
	}
}

// costOf returns the price of the saved resources. Resources without a price are omitted.
func (p prices) costOf(t savings.Totals) (sum float64) {
	for _, one := range p.resourcesOf(t) {
		if one.price != nil {
			sum += *one.price * one.seconds / time.Hour.Seconds()
		}
	}
	return sum
}

// formatAmount returns an amount with the currency.
func (p prices) formatAmount(amount float64) string {
	text := strconv.FormatFloat(amount, 'f', 2, 64)
	whole, cents, _ := strings.Cut(text, ".")
	return strings.TrimSpace(groupDigits(whole) + "." + cents + " " + p.currency)
}

// describe lists the prices, and the resources without a price.
func (p prices) describe() string {
	if !p.areSet() {
		return ""
	}
	var known, unknown []string
	for _, one := range p.resourcesOf(savings.Totals{}) {
		if one.price == nil {
			unknown = append(unknown, one.unit)
			continue
		}
		price := strings.TrimSpace(strconv.FormatFloat(*one.price, 'f', -1, 64) + " " + p.currency)
		known = append(known, price+" per "+one.unit)
	}
	text := "Amounts are at current prices: " + strings.Join(known, ", ") + "."
	if len(unknown) > 0 {
		text += " Without a price: " + strings.Join(unknown, ", ") + "."
	}
	return text
}
