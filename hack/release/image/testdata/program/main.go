// SPDX-License-Identifier: Apache-2.0

// Program satisfies the requirements of an image, and is a tenth of the size of torpor: compressing torpor takes
// minutes with the race detector.
package main

import _ "golang.org/x/crypto/x509roots/fallback"

func main() {}
