// SPDX-License-Identifier: Apache-2.0

//go:build linux

package podcluster

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/torpor-dev/torpor/local/images"
	"github.com/torpor-dev/torpor/local/realnode"
)

// makeImages makes the image files that are missing or may have changed, and returns all.
func (c Config) makeImages() ([]string, error) {
	busybox := realnode.BusyboxPath(c.Parts)
	made := []images.Image{
		images.NewPause(filepath.Join(c.Programs, "pause")), images.NewBusybox(busybox), images.NewWebapp(filepath.Join(c.Programs, "webapp")),
	}
	if torpor := filepath.Join(c.Programs, "torpor"); fileExists(torpor) {
		made = append(made, images.NewTorpor(torpor))
	} else {
		c.printLine("no image %s: expected the program %s, found none; make torpor builds it", images.Torpor, torpor)
	}
	var files []string
	for _, image := range made {
		file, err := c.writeImage(image)
		if err != nil {
			return nil, err
		}
		files = append(files, file)
	}
	mysql, err := c.mysqlImage(busybox)
	return append(files, mysql), err
}

// mysqlImage is the only one that takes its time; what it is made of only changes when it is fetched anew.
func (c Config) mysqlImage(busybox string) (string, error) {
	file := c.imageFile(images.MySQL)
	if fileExists(file) {
		return file, nil
	}
	image, err := images.NewMySQL(c.MySQL, busybox)
	if err != nil {
		return "", err
	}
	return c.writeImage(image)
}

func (c Config) writeImage(image images.Image) (string, error) {
	file := c.imageFile(image.Name)
	if err := image.WriteFile(file); err != nil {
		return "", err
	}
	c.printLine("made image %s", image.Name)
	return file, nil
}

// imageFile is named by what is before the tag.
func (c Config) imageFile(name string) string {
	base := filepath.Base(name)
	return filepath.Join(c.Parts, "images", fmt.Sprintf("%s.tar", base))
}

func fileExists(file string) bool {
	_, err := os.Stat(file)
	return err == nil
}
