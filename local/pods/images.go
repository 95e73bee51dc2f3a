// SPDX-License-Identifier: Apache-2.0

//go:build linux

package pods

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/torpor-dev/torpor/local/images"
	"github.com/torpor-dev/torpor/local/machine"
)

// images makes the image files that are missing or may have changed, and returns all.
func (c Config) images() ([]string, error) {
	busybox := machine.Busybox(c.Parts)
	made := []images.Image{
		images.NewPause(filepath.Join(c.Programs, "pause")), images.NewBusybox(busybox), images.NewWebapp(filepath.Join(c.Programs, "webapp")),
	}
	if torpor := filepath.Join(c.Programs, "torpor"); exists(torpor) {
		made = append(made, images.NewTorpor(torpor))
	} else {
		c.say("no image %s: expected the program %s, found none; make torpor builds it", images.Torpor, torpor)
	}
	var files []string
	for _, image := range made {
		file, err := c.write(image)
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
	if exists(file) {
		return file, nil
	}
	image, err := images.NewMySQL(c.MySQL, busybox)
	if err != nil {
		return "", err
	}
	return c.write(image)
}

func (c Config) write(image images.Image) (string, error) {
	file := c.imageFile(image.Name)
	if err := image.Write(file); err != nil {
		return "", err
	}
	c.say("made image %s", image.Name)
	return file, nil
}

// imageFile is named by what is before the tag.
func (c Config) imageFile(name string) string {
	base := filepath.Base(name)
	return filepath.Join(c.Parts, "images", fmt.Sprintf("%s.tar", base))
}

func exists(file string) bool {
	_, err := os.Stat(file)
	return err == nil
}
