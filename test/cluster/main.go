// Command afloat-cluster runs a real Kubernetes cluster on one Linux machine without Docker: see README.md.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := newCommand().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func newCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "afloat-cluster",
		Short: "A real Kubernetes cluster on this machine, without Docker",
		Long: `A real Kubernetes cluster on this machine, without Docker. The environment says which:
  CLUSTER      its name (afloat)
  NODES        real nodes (2 as root, else 0)
  SIMULATED    simulated nodes (0 as root, else 20)
  CSI          1: with the driver of volumes that grow; a cluster without it gets it
  K8S_VERSION  ` + fmt.Sprint(kubernetesVersions) + ` (` + defaultVersion + `)`,
		SilenceUsage: true, SilenceErrors: true,
		CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true},
	}
	root.AddCommand(upCommand(), downCommand(), statusCommand(), binariesCommand(), imageCommand(),
		registryCommand(), runCommand(), execCommand(), startCommand(), versionsCommand())
	root.AddCommand(pathCommand("kubeconfig", "Print the path of the administrator's kubeconfig",
		cobra.NoArgs, func(c *cluster, _ []string) (string, error) { return c.kubeconfig(), nil }))
	root.AddCommand(pathCommand("audit", "Print the path of the audit log: every write, with its user agent",
		cobra.NoArgs, func(c *cluster, _ []string) (string, error) { return c.auditLog(), nil }))
	root.AddCommand(pathCommand("volumes",
		"Print the path of the folder that has a folder for each volume of the CSI driver", cobra.NoArgs,
		func(c *cluster, _ []string) (string, error) { return c.volumes(), nil }))
	root.AddCommand(pathCommand("node-socket NODE", "Print the path of a real node's containerd socket",
		cobra.ExactArgs(1), func(c *cluster, args []string) (string, error) {
			if !slices.Contains(c.nodeNames(), args[0]) {
				return "", fmt.Errorf("no real node %s; there are %v", args[0], c.nodeNames())
			}
			return c.nodeSocket(args[0]), nil
		}))

	return root
}

func open() (*cluster, error) {
	name := os.Getenv("CLUSTER")
	if name == "" {
		name = "afloat"
	}
	return openCluster(name, newProgress(os.Stderr))
}

// openExisting is like open, but returns an error if the cluster does not exist.
func openExisting() (*cluster, error) {
	c, err := open()
	if err == nil && !c.exists() {
		return nil, fmt.Errorf("cluster %s is not there: `go run . up` makes it", c.name)
	}
	return c, err
}

func versionsCommand() *cobra.Command {
	return &cobra.Command{
		Use: "versions", Short: "Print the versions of Kubernetes that a cluster can have, oldest first", Args: cobra.NoArgs,
		Run: func(*cobra.Command, []string) { fmt.Println(strings.Join(kubernetesVersions, "\n")) },
	}
}

func number(name string) (*int, error) {
	v := os.Getenv(name)
	if v == "" {
		return nil, nil //nolint:nilnil // the option was not given
	}
	n, err := strconv.Atoi(v)
	if err != nil {
		return nil, fmt.Errorf("%s=%s is not a number", name, v)
	}
	return &n, nil
}

func version() (string, error) {
	v := os.Getenv("K8S_VERSION")
	if v == "" {
		return defaultVersion, nil
	}
	return v, checkVersion(v)
}

func upCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "up",
		Short: "Build what is missing, start the cluster, wait until its nodes are Ready; repair it if it is there",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := open()
			if err != nil {
				return err
			}

			var r request
			if v, err := version(); err != nil {
				return err
			} else if os.Getenv("K8S_VERSION") != "" {
				r.version = &v
			}

			if r.nodes, err = number("NODES"); err != nil {
				return err
			}
			if r.simulated, err = number("SIMULATED"); err != nil {
				return err
			}

			r.csi = os.Getenv("CSI") == "1"
			return c.up(cmd.Context(), r)
		},
	}
}

func downCommand() *cobra.Command {
	return &cobra.Command{
		Use: "down", Short: "End the cluster and leave nothing behind", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			c, err := open()
			if err != nil {
				return err
			}
			return c.down()
		},
	}
}

// runCommand starts a program of the user in the background, where it can reach the cluster's own addresses.
func runCommand() *cobra.Command {
	return &cobra.Command{
		Use: "run NAME -- PROGRAM [ARGS]", Args: cobra.MinimumNArgs(2),
		Short: "Run a program beside the cluster, in its network, until `down`; one of the same name is replaced",
		RunE: func(_ *cobra.Command, args []string) error {
			c, err := openExisting()
			if err != nil {
				return err
			}

			path, err := filepath.Abs(args[1])
			if err != nil {
				return fmt.Errorf("find %s: %w", args[1], err)
			}

			name := "run-" + filepath.Base(args[0])
			if old, ok := c.process(name); ok {
				if err := stopAll([]record{old}); err != nil {
					return err
				}
			}

			if _, err := c.start(program{name: name, path: path, args: args[2:]}); err != nil {
				return err
			}

			fmt.Println(c.logPath(name))
			return nil
		},
	}
}

func pathCommand(use, short string, args cobra.PositionalArgs,
	path func(*cluster, []string) (string, error)) *cobra.Command {
	return &cobra.Command{
		Use: use, Short: short, Args: args,
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := openExisting()
			if err != nil {
				return err
			}
			p, err := path(c, args)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), p)
			return err
		},
	}
}

func binariesCommand() *cobra.Command {
	var only []string
	var envtest bool
	cmd := &cobra.Command{
		Use: "binaries", Short: "Build what is missing and print the folders; starts nothing",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			v, err := version()
			if err != nil {
				return err
			}

			out := newProgress(os.Stderr)
			if envtest {
				dir, err := ensureEnvtest(v, out)
				if err != nil {
					return err
				}
				fmt.Fprintln(cmd.OutOrStdout(), dir)
				return nil
			}

			for _, name := range only {
				if comp(v, name).name == "" {
					return fmt.Errorf("--only %s: there is no such component", name)
				}
			}

			for _, c := range components(v) {
				if len(only) > 0 && !slices.Contains(only, c.name) {
					continue
				}
				dir, err := c.ensure(out)
				if err != nil {
					return err
				}
				fmt.Fprintln(cmd.OutOrStdout(), dir)
			}

			return nil
		},
	}

	cmd.Flags().StringSliceVar(&only, "only", nil,
		"components: etcd, kubernetes, containerd, runc, cni, kwok, pause, csi-driver, csi-provisioner, csi-resizer")
	cmd.Flags().BoolVar(&envtest, "envtest", false,
		"print one folder with etcd, kube-apiserver and kubectl, for KUBEBUILDER_ASSETS")
	return cmd
}

func imageCommand() *cobra.Command {
	root := &cobra.Command{Use: "image", Short: "Make images and put them into the cluster's registry"}
	var r buildRequest
	var archive string
	build := &cobra.Command{
		Use: "build", Short: "Make an image of static binaries", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			img, err := r.image()
			if err != nil {
				return err
			}
			if archive != "" {
				return writeArchive(archive, img, r.names...)
			}

			c, err := openExisting()
			if err != nil {
				return err
			}

			digest, err := img.Digest()
			if err != nil {
				return err
			}
			if err := c.push(img, r.names...); err != nil {
				return err
			}

			for _, n := range r.names {
				fmt.Println(n, digest)
			}
			return nil
		},
	}

	f := build.Flags()
	f.StringArrayVar(&r.names, "name", nil, "NAME:TAG, as pods will call it (repeat for more names)")
	f.StringArrayVar(&r.binaries, "binary", nil, "FILE=/destination (repeat)")
	f.StringVar(&r.entrypoint, "entrypoint", "", "path in the image to run")
	f.StringArrayVar(&r.args, "arg", nil, "argument of the entrypoint (repeat)")
	f.StringVar(&r.user, "user", "65534", "user id to run as")
	f.StringVar(&archive, "archive", "",
		"write FILE, for \"docker load\" and the like, instead of into the cluster's registry; needs no cluster")

	for _, required := range []string{"name", "binary", "entrypoint"} {
		if err := build.MarkFlagRequired(required); err != nil {
			panic(err)
		}
	}

	test := &cobra.Command{
		Use: "test", Short: "Make the test images again", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			c, err := openExisting()
			if err != nil {
				return err
			}
			if err := c.pushTestImages(true); err != nil {
				return err
			}
			for _, t := range testTags {
				fmt.Println(t.repository + ":" + t.tag)
			}
			return nil
		},
	}

	root.AddCommand(build, test)
	return root
}

func registryCommand() *cobra.Command {
	var address, dir string
	cmd := &cobra.Command{
		Use: "registry", Short: "Serve images from a folder (started by up)", Hidden: true,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error { return serveRegistry(address, dir) },
	}
	cmd.Flags().StringVar(&address, "address", "", "address to listen on")
	cmd.Flags().StringVar(&dir, "dir", "", "folder")
	return cmd
}
