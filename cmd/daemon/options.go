package main

import (
	"errors"
	"flag"
	"fmt"
	"os"

	"github.com/spf13/pflag"
	logsapi "k8s.io/component-base/logs/api/v1"
	"k8s.io/klog/v2"
)

// options are the flags and the environment of the daemon (docs/spec/node-daemon.md).
type options struct {
	version bool // tells the version, and nothing else counts
	node    string

	addr, pprofAddr string
	pprof           bool
	socketRoot      string
	socketFile      string
	pullWorkers     int
	pluginConfig    string
	pluginDir       string
	qps             float32
	burst           int
	kubeconfig      string
	featureGates    string
	logging         *logsapi.LoggingConfiguration
}

func parseOptions(args []string) (*options, error) {
	o := &options{logging: logsapi.NewLoggingConfiguration(), node: os.Getenv("NODE_NAME")}
	fs := pflag.NewFlagSet("daemon", pflag.ContinueOnError)
	fs.BoolVar(&o.version, "version", false, "print what this program was built from, and end")
	fs.StringVar(&o.addr, "addr", ":10221", "address of /metrics, /healthz and /readyz")
	fs.BoolVar(&o.pprof, "enable-pprof", false, "serve Go profiles")
	fs.StringVar(&o.pprofAddr, "pprof-addr", "localhost:10222",
		"address of the Go profiles; the daemon is in the node's network")
	fs.StringVar(&o.socketFile, "socket-file", "",
		"the only CRI sockets to try, relative to /hostvarrun, with commas between them; not on Windows")
	fs.StringVar(&o.socketRoot, "socket-root", "",
		"folder in which sockets are looked for instead of /hostvarrun, to run outside a pod")
	fs.IntVar(&o.pullWorkers, "max-workers-for-pull-image", 5,
		"image pulls at the same time; below 1 is no limit (also --max-concurrency)")
	fs.StringVar(&o.pluginConfig, "plugin-config-file", "/kruise/CredentialProviderPlugin.yaml",
		"configuration of image credential providers")
	fs.StringVar(&o.pluginDir, "plugin-bin-dir", "/kruise/plugins",
		"folder of the image credential providers")
	fs.Float32Var(&o.qps, "rest-config-qps", 0, "API requests per second; 0 is the client library's default")
	fs.IntVar(&o.burst, "rest-config-burst", 0, "API requests at once; 0 is the client library's default")
	fs.StringVar(&o.kubeconfig, "kubeconfig", os.Getenv("KUBECONFIG"),
		"path of a kubeconfig; empty is the in-cluster configuration")
	fs.StringVar(&o.featureGates, "feature-gates", "", "comma list of Name=bool, the same as the manager's")
	fs.SetNormalizeFunc(func(_ *pflag.FlagSet, name string) pflag.NormalizedName {
		if name == "max-concurrency" { // the name in the reference's documentation (ND-020)
			name = "max-workers-for-pull-image"
		}
		return pflag.NormalizedName(name)
	})
	logsapi.AddFlags(o.logging, fs)
	legacy := flag.NewFlagSet("klog", flag.ContinueOnError)
	klog.InitFlags(legacy)
	legacy.VisitAll(func(f *flag.Flag) {
		if fs.Lookup(f.Name) == nil {
			fs.AddGoFlag(f)
		}
	})
	if err := fs.Parse(args); err != nil {
		return nil, err
	}
	if fs.NArg() > 0 {
		return nil, fmt.Errorf("unexpected argument %q", fs.Arg(0))
	}
	if o.version {
		return o, nil
	}
	if o.node == "" {
		return nil, errors.New("the environment variable NODE_NAME must name the node") // ND-013
	}

	return o, nil
}
