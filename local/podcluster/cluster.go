// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Package podcluster is a complete small cluster with real pods on this machine: a control plane, a real node,
// Services, DNS, volumes, and images built from folders.
package podcluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/torpor-dev/torpor/local/component"
	"github.com/torpor-dev/torpor/local/controlplane"
	"github.com/torpor-dev/torpor/local/debian"
	"github.com/torpor-dev/torpor/local/images"
	"github.com/torpor-dev/torpor/local/kubeclient"
	"github.com/torpor-dev/torpor/local/realnode"
)

// NodeName is the name of the cluster's only node.
const NodeName = "n1"

// ReadyFile exists in the folder while pods can be created.
const ReadyFile = "ready"

// Config is the configuration of the cluster.
type Config struct {
	// Dir is the folder for all created files, including admin.kubeconfig; files of an earlier cluster are removed
	// first.
	Dir string
	// Parts is the folder filled by realnode.FetchParts; images are stored there as well.
	Parts string
	// Programs is the folder with kubelet, kube-proxy, coredns, pause, webapp and torpor.
	Programs string
	// MySQL is the folder filled by debian.FetchMySQL. Without it, the cluster has no image of MySQL.
	MySQL string
	// Out is the destination of progress messages.
	Out io.Writer
}

func (c Config) path(elem ...string) string {
	return filepath.Join(append([]string{c.Dir}, elem...)...)
}

// KubeconfigPath returns the path of a cluster admin's kubeconfig.
func (c Config) KubeconfigPath() string { return c.path("admin.kubeconfig") }

func (c Config) controlPlaneConfig() controlplane.Config {
	return controlplane.Config{Dir: c.path("control-plane"), Address: realnode.HostAddress}
}

// withAbsolutePaths makes the paths absolute, because the node's programs run in other folders.
func (c Config) withAbsolutePaths() (Config, error) {
	for _, path := range []*string{&c.Dir, &c.Parts, &c.Programs, &c.MySQL} {
		absolute, err := filepath.Abs(*path)
		if err != nil {
			return c, fmt.Errorf("resolve folder: %w", err)
		}
		*path = absolute
	}
	return c, nil
}

func (c Config) clearFolder() error {
	var errs []error
	for _, name := range []string{"control-plane", "node", "volumes", ReadyFile, "admin.kubeconfig"} {
		errs = append(errs, os.RemoveAll(c.path(name)))
	}
	errs = append(errs, os.MkdirAll(c.Dir, 0o755))
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("clear folder: %w", err)
	}
	return nil
}

// stopLimit is longer than all components of a control plane take to stop.
const stopLimit = 3 * time.Minute

// RunCluster runs the cluster until ctx ends. Afterwards nothing is left on the machine except the files in the
// folders. ReadyFile exists while pods can be created.
func RunCluster(ctx context.Context, c Config) error {
	c, err := c.withAbsolutePaths()
	if err != nil {
		return err
	}
	disconnect, err := realnode.ConnectBridge(ctx)
	if err != nil {
		return err
	}
	return errors.Join(c.runParts(ctx), disconnect())
}

func (c Config) runParts(ctx context.Context) error {
	if err := c.clearFolder(); err != nil {
		return err
	}
	began := time.Now()
	images, err := c.makeImages()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	control := component.Start(ctx, "control plane", func(ctx context.Context, ready func()) error {
		return controlplane.Run(ctx, c.controlPlaneConfig(), func(string) { ready() })
	})
	err = control.AwaitReady(ctx)
	var node *component.Component
	if err == nil {
		c.printLine("the control plane serves after %s", secondsSince(began))
		node = component.Start(ctx, "node", func(ctx context.Context, ready func()) error {
			return realnode.RunNode(ctx, c.nodeConfig(images), c.Out, ready)
		})
		err = node.AwaitReady(ctx)
	}
	if err == nil {
		c.printLine("node %s is Ready after %s", NodeName, secondsSince(began))
		err = c.serveVolumes(ctx, control, node)
		_ = os.Remove(c.path(ReadyFile))
	}
	// Stop the node first: its programs would only log errors without a control plane.
	return errors.Join(err, node.Stop(stopLimit), control.Stop(stopLimit))
}

func (c Config) nodeConfig(images []string) realnode.Config {
	return realnode.Config{
		Name: NodeName, Dir: c.path("node"), ControlPlane: c.controlPlaneConfig().Dir, Parts: c.Parts, Programs: c.Programs, Images: images,
	}
}

func (c Config) serveVolumes(ctx context.Context, components ...*component.Component) error {
	client, err := kubeclient.NewClient(c.controlPlaneConfig().AdminKubeconfig())
	if err != nil {
		return err
	}
	v := volumeProvisioner{client: client, dir: c.path("volumes")}
	if err := v.createStorageClass(ctx); err != nil {
		return err
	}
	// Create the ready file last: a user may create pods with volumes as soon as it exists.
	kubeconfig, err := os.ReadFile(c.controlPlaneConfig().AdminKubeconfig())
	if err == nil {
		err = errors.Join(os.WriteFile(c.KubeconfigPath(), kubeconfig, 0o600), os.WriteFile(c.path(ReadyFile), nil, 0o600))
	}
	if err != nil {
		return fmt.Errorf("report that the cluster is ready: %w", err)
	}
	c.printLine("ready: %s", c.KubeconfigPath())
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go v.runPasses(ctx, c.Out)
	return component.AwaitFirstExit(ctx, components...)
}

func (c Config) printLine(format string, args ...any) { fmt.Fprintf(c.Out, format+"\n", args...) }

func secondsSince(began time.Time) string { return fmt.Sprintf("%.1fs", time.Since(began).Seconds()) }

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
	if !fileExists(filepath.Join(c.MySQL, debian.MySQLServer)) {
		c.printLine("no image %s: expected MySQL in %s, found none; make mysql fetches it", images.MySQL, c.MySQL)
		return files, nil
	}
	mysql, err := c.mysqlImage(busybox)
	return append(files, mysql), err
}

// mysqlImage returns the file of the only image whose build takes long. The file is reused until this program is
// rebuilt.
func (c Config) mysqlImage(busybox string) (string, error) {
	file := c.imageFile(images.MySQL)
	if isNewerThanProgram(file) {
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

// imageFile returns the path of an image's file, whose name contains the tag.
func (c Config) imageFile(name string) string {
	base := filepath.Base(name)
	return filepath.Join(c.Parts, "images", fmt.Sprintf("%s.tar", base))
}

func fileExists(file string) bool {
	_, err := os.Stat(file)
	return err == nil
}

// isNewerThanProgram reports whether a file exists and was written after this program was built.
func isNewerThanProgram(file string) bool {
	program, err := os.Executable()
	if err != nil {
		return false
	}
	built, err := os.Stat(program)
	if err != nil {
		return false
	}
	written, err := os.Stat(file)
	return err == nil && written.ModTime().After(built.ModTime())
}
