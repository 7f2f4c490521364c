package takeover

import (
	"flag"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	logsapi "k8s.io/component-base/logs/api/v1"
	"k8s.io/klog/v2"

	"github.com/afloat-project/afloat/internal/framework"
	"github.com/afloat-project/afloat/internal/platform/features"
	"github.com/afloat-project/afloat/internal/plugin/operations/installation"
	"github.com/afloat-project/afloat/internal/registry"
)

// Flags of the manager and the daemon besides those of the kinds and of logging. A test compares
// [ManagerFlags] with the flags of the manager.
var (
	// ManagerFlags lists the flags of the manager that keep their meaning in another installation.
	ManagerFlags = []string{"assign-bcj-pods-by-scheduler", "controller-cache-sync-timeout",
		"default-ttlseconds-for-always-nodeimage", "disable-no-deepcopy", "enable-leader-election",
		"expectation-timeout", "feature-gates", "launchpriority-workers", "leader-election-id",
		"leader-election-lease-duration", "leader-election-namespace", "leader-election-renew-deadline",
		"leader-election-resource-lock", "leader-election-retry-period", "namespace",
		"rate-limiter-base-delay", "rate-limiter-bucket-size", "rate-limiter-max-delay", "rate-limiter-qps",
		"rest-config-burst", "rest-config-qps", "shutdown-delay-duration", "sync-period",
		"webhook-initialize-timeout"}
	// DaemonFlags lists the flags of the daemon that keep their meaning.
	DaemonFlags = []string{"feature-gates", "max-workers-for-pull-image", "max-concurrency", "plugin-bin-dir",
		"plugin-config-file", "rest-config-burst", "rest-config-qps", "socket-file"}
	// set lists the flags whose values belong to the manifests: addresses of probes, mounted folders, and
	// verbosity.
	set = []string{"enable-pprof", "kubeconfig", "logtostderr", "pprof-addr", "protection-log-path",
		"socket-root", "v", "webhook-client-ca-file", "webhook-client-names"}
	// usual maps flags of set to values that are no customization. Any other value is reported.
	usual = map[string][]string{"protection-log-path": {"/log"}, "kubeconfig": {}}
	// addresses maps flags with an address to the name of the container port in the manifests. The port is
	// carried over, but not the address, because probes call it.
	addresses = map[string]string{"metrics-addr": "metrics", "health-probe-addr": "health", "addr": "health"}
)

// carried is what a Deployment or DaemonSet of the other installation hands over.
type carried struct {
	Flags []string `json:"flags,omitempty"`
	Env   []any    `json:"env,omitempty"`
	// Notes explain how the flags were read, and name what is not carried over.
	Notes []string `json:"notes,omitempty"`
	template
}

// flagSet returns a flag set with the flags of logging, those of the kinds if wanted, and the given names.
func flagSet(kinds bool, names []string) *pflag.FlagSet {
	fs := pflag.NewFlagSet("", pflag.ContinueOnError)
	fs.SetOutput(io.Discard)
	if kinds {
		(&framework.Flags{}).AddTo(fs, registry.Kinds)
	}

	logsapi.AddFlags(logsapi.NewLoggingConfiguration(), fs)
	legacy := flag.NewFlagSet("klog", flag.ContinueOnError)
	klog.InitFlags(legacy)
	legacy.VisitAll(func(f *flag.Flag) {
		if fs.Lookup(f.Name) == nil {
			fs.AddGoFlag(f)
		}
	})

	for _, name := range names {
		if fs.Lookup(name) == nil {
			fs.String(name, "", "")
		}
	}

	return fs
}

// carry reads what the manager's Deployment or the node daemon's DaemonSet of the other installation hands
// over to the one in manifest. Without a reading, feature gates are left out.
func carry(workload, manifest *unstructured.Unstructured, r *reading) carried {
	var c carried
	if workload == nil {
		return c
	}

	container := mainContainer(workload)
	fs := flagSet(true, ManagerFlags)
	matter := slices.Collect(maps.Keys(features.Known()))
	if workload.GetKind() == installation.DaemonSets.Kind {
		fs, matter = flagSet(false, DaemonFlags), daemonGates
	}

	var gates []string
	args := texts(container["args"])
	if command := texts(container["command"]); len(command) > 1 {
		args = append(command[1:], args...)
	}

	for i := 0; i < len(args); i++ {
		name, value, has := strings.Cut(strings.TrimLeft(args[i], "-"), "=")
		flag := fs.Lookup(name)
		if !has && i+1 < len(args) && !strings.HasPrefix(args[i+1], "-") &&
			(flag == nil || flag.NoOptDefVal == "") {
			i, value, has = i+1, args[i+1], true
		}

		text := "--" + name
		if has {
			text += "=" + value
		}
		if at := addresses[name]; at != "" && fs.Lookup(name) == nil {
			c.port(at, value)
			continue
		}

		switch {
		case slices.Contains(set, name):
			if replaces := usual[name]; replaces != nil && !slices.Contains(replaces, value) {
				c.Notes = append(c.Notes,
					text+" is not carried over: the manifests say otherwise, see --manifests")
			}
		case flag == nil:
			c.Notes = append(c.Notes, text+" is not carried over: Afloat has no such flag")
		case name == "leader-election-resource-lock" && value != "leases":
			c.Notes = append(c.Notes, text+" is not carried over: Afloat's lock is a Lease")
		case name == "enable-leader-election" && value == "false":
			c.Notes = append(c.Notes, text+" is not carried over: the manifests have two replicas")
		case name == "feature-gates":
			gates = append(gates, value)
		default:
			c.Flags = append(c.Flags, text)
		}
	}

	if r != nil {
		list, notes := r.gates(strings.Join(gates, ","), matter)
		if c.Notes = append(c.Notes, notes...); list != "" {
			c.Flags = append(c.Flags, "--feature-gates="+list)
		}
	}

	c.Notes = append(c.Notes, c.environment(container, r)...)
	c.Notes = append(c.Notes, c.read(workload, manifest)...)
	return c
}

// mainContainer returns the container named manager or daemon, or else the first one.
func mainContainer(workload *unstructured.Unstructured) map[string]any {
	containers := installation.Maps(workload.Object, "spec", "template", "spec", "containers")
	for _, container := range containers {
		if name, _ := container["name"].(string); name == "manager" || name == "daemon" {
			return container
		}
	}
	if len(containers) == 0 {
		return map[string]any{}
	}
	return containers[0]
}

func texts(value any) []string {
	items, _ := value.([]any)
	var all []string
	for _, item := range items {
		if text, ok := item.(string); ok {
			all = append(all, text)
		}
	}
	return all
}
