// SPDX-License-Identifier: Apache-2.0

// Command release builds the artifacts of a release, on any machine with Go and git: without Docker, root or other
// tools.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/torpor-dev/torpor/hack/release/bundle"
	"github.com/torpor-dev/torpor/hack/release/chart"
	releaseimage "github.com/torpor-dev/torpor/hack/release/image"
	"github.com/torpor-dev/torpor/hack/release/krew"
)

const downloads = "https://github.com/torpor-dev/torpor/releases/download"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	root := &cobra.Command{
		Use: "release", Short: "Build the artifacts of a release", SilenceUsage: true, SilenceErrors: true,
		Long: `Build the artifacts of a release. Run it in the repository. The version is the tag of the commit, or derived from the commit.
Exit codes: 0 if everything was built, 1 after an error.`,
	}
	root.AddCommand(imageCommand(), pluginsCommand(), bundleCommand(), chartCommand(), artifactsCommand())
	if err := root.ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func imageCommand() *cobra.Command {
	var to imageTarget
	architectures := []string{"amd64", "arm64"}
	cmd := &cobra.Command{
		Use: "image", Short: "Build Torpor's image for Linux on amd64 and arm64, with a bill of materials for each", Args: cobra.NoArgs,
		Example: `  release image --dir .cache/release
  release image --dir .cache/release --arch amd64 --push registry.example/torpor:v1
  release image --dir .cache/release --archive torpor.tar --name torpor:dev`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if to.archive != "" {
				if err := releaseimage.ValidateName(to.name); err != nil {
					return err
				}
			}
			var programs []string
			for _, architecture := range architectures {
				path, err := programCompiler{".", filepath.Join(to.folder, "programs")}.compile(cmd.Context(), "torpor", krew.Machine{OS: "linux", Architecture: architecture})
				if err != nil {
					return err
				}
				programs = append(programs, path)
			}
			return writeImage(cmd.Context(), cmd.OutOrStdout(), programs, to)
		},
	}
	cmd.Flags().StringVar(&to.folder, "dir", ".cache/release", "output folder")
	cmd.Flags().StringVar(&to.push, "push", "", "name in a registry, such as registry.example/torpor:v1; empty pushes nothing")
	cmd.Flags().StringVar(&to.archive, "archive", "", "file for the image and its name, in the format of ctr images import; empty writes no file")
	cmd.Flags().StringVar(&to.name, "name", "", "name under which an import of the archive stores the image, such as torpor:dev")
	cmd.MarkFlagsRequiredTogether("archive", "name")
	cmd.Flags().StringSliceVar(&architectures, "arch", architectures, "architectures of processors, such as amd64")
	return cmd
}

// imageTarget defines where the image is written.
type imageTarget struct{ folder, push, archive, name string }

func writeImage(ctx context.Context, out io.Writer, programs []string, to imageTarget) error {
	r, err := releaseimage.Build(programs...)
	if err != nil {
		return err
	}
	layout := filepath.Join(to.folder, "image")
	if err := r.WriteLayout(layout, to.name); err != nil {
		return err
	}
	for _, b := range r.Bills {
		name := filepath.Join(to.folder, "torpor_"+strings.ReplaceAll(b.Platform, "/", "_")+".cdx.json")
		if err := os.WriteFile(name, b.Document, 0o600); err != nil {
			return fmt.Errorf("write the bill of materials: %w", err)
		}
	}
	digest, err := r.Index.Digest()
	if err != nil {
		return fmt.Errorf("compute the digest of the image: %w", err)
	}
	fmt.Fprintf(out, "%s is the image, as an OCI layout: %s\n", digest, layout)
	if to.archive != "" {
		if err := releaseimage.WriteArchive(layout, to.archive); err != nil {
			return err
		}
		fmt.Fprintf(out, "the archive %s holds the image %s; ctr -n k8s.io images import loads it into a node\n", to.archive, to.name)
	}
	if to.push == "" {
		return nil
	}
	pushed, err := r.Push(ctx, to.push)
	if err != nil {
		return err
	}
	fmt.Fprintln(out, "pushed", pushed)
	return nil
}

func pluginsCommand() *cobra.Command {
	var folder, address, version string
	var onlyThis bool
	cmd := &cobra.Command{
		Use: "plugins", Short: "Build the plugins of kubectl for all machines, and the manifests for krew", Args: cobra.NoArgs,
		Example: `  release plugins --dir .cache/release`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			machines := krew.ListMachines()
			if onlyThis {
				machines = []krew.Machine{{OS: runtime.GOOS, Architecture: runtime.GOARCH}}
			}
			for _, p := range krew.ListPlugins() {
				if err := packagePlugin(cmd.Context(), cmd.OutOrStdout(), p, machines, pluginTarget{folder, address, version}); err != nil {
					return err
				}
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&folder, "dir", ".cache/release", "output folder")
	cmd.Flags().StringVar(&address, "address", downloads, "address of the releases, to which the version is added")
	cmd.Flags().StringVar(&version, "version", "", "version such as v1.0.0; empty uses the version of the commit")
	cmd.Flags().BoolVar(&onlyThis, "only-this-machine", false, "build only for the machine that this runs on")
	return cmd
}

// pluginTarget defines where the plugins are written, and the address below which they are published.
type pluginTarget struct{ folder, address, version string }

func packagePlugin(ctx context.Context, out io.Writer, p krew.Plugin, machines []krew.Machine, to pluginTarget) error {
	var programs []krew.BuiltPlugin
	version := to.version
	for _, m := range machines {
		path, err := programCompiler{".", filepath.Join(to.folder, "programs")}.compile(ctx, "kubectl-"+p.Name, m)
		if err != nil {
			return err
		}
		programs = append(programs, krew.BuiltPlugin{Machine: m, Path: path})
		if version != "" {
			continue
		}
		// The version is checked first, because building for the other machines takes minutes.
		if version, err = versionOf(path); err != nil {
			return err
		}
	}
	license, err := os.ReadFile("LICENSE")
	if err != nil {
		return fmt.Errorf("read the license: %w", err)
	}
	m, err := p.Package(to.folder, to.address+"/"+version, version, license, programs)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "%s is the manifest of the plugin %s %s for %d platforms\n", filepath.Join(to.folder, p.Name+".yaml"), p.Name, m.Spec.Version, len(m.Spec.Platforms))
	return nil
}

func bundleCommand() *cobra.Command {
	o := bundle.Options{Root: os.DirFS(".")}
	var folder string
	cmd := &cobra.Command{
		Use: "bundle", Short: "Build the bundle for the Operator Lifecycle Manager", Args: cobra.NoArgs,
		Example: `  release bundle --dir .cache/release --image registry.example/torpor@sha256:… --version v1.0.0 --created 2026-01-02T15:04:05Z`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.Write(filepath.Join(folder, "bundle")); err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%s is the bundle of version %s\n", filepath.Join(folder, "bundle"), o.Version)
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar(&folder, "dir", ".cache/release", "output folder")
	f.StringVar(&o.Image, "image", "", "image of the manager, preferably with its digest")
	f.StringVar(&o.Version, "version", "", "version such as v1.0.0")
	f.StringVar(&o.Created, "created", "", "time of the release, such as 2026-01-02T15:04:05Z")
	cobra.CheckErr(cmd.MarkFlagRequired("image"))
	cobra.CheckErr(cmd.MarkFlagRequired("version"))
	return cmd
}

func chartCommand() *cobra.Command {
	o := chart.Options{Root: os.DirFS(".")}
	var folder, path string
	cmd := &cobra.Command{
		Use: "chart", Short: "Build the archive of the chart", Args: cobra.NoArgs,
		Example: `  release chart --dir .cache/release --version v1.0.0
  release chart --archive .cache/torpor.tgz`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			p, err := o.Build()
			if err != nil {
				return err
			}
			if path == "" {
				path = filepath.Join(folder, p.FileName())
			}
			if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o750), os.WriteFile(path, p.Archive, 0o600)); err != nil {
				return fmt.Errorf("write the chart: %w", err)
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%s is the chart of version %s\n", path, p.Version)
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar(&folder, "dir", ".cache/release", "output folder")
	f.StringVar(&path, "archive", "", "file of the chart, instead of torpor-VERSION.tgz in the output folder")
	f.StringVar(&o.Version, "version", "", "version such as v1.0.0; empty keeps the version of charts/torpor")
	f.StringVar(&o.Image, "image", "", "image that the chart uses by default, with tag and digest; empty keeps the image of values.yaml")
	return cmd
}
