// SPDX-License-Identifier: Apache-2.0

// Program has what an image demands of a program, and is a tenth as large as torpor: to compress that one takes minutes with the race detector.
package main

import _ "golang.org/x/crypto/x509roots/fallback"

func main() {}
