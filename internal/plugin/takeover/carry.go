package takeover

import (
	"flag"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/component-base/featuregate"
	logsapi "k8s.io/component-base/logs/api/v1"
	"k8s.io/klog/v2"

	"github.com/afloat-project/afloat/internal/platform/features"
	"github.com/afloat-project/afloat/internal/plugin/installation"
	"github.com/afloat-project/afloat/internal/registry"
)

// Flags that the manager and the daemon have besides those of the kinds and of logging. [ManagerFlags] is compared with the manager's own.
var (
	// ManagerFlags are those of the manager that keep their meaning in another installation.
	ManagerFlags = []string{"assign-bcj-pods-by-scheduler", "controller-cache-sync-timeout", "default-ttlseconds-for-always-nodeimage",
		"disable-no-deepcopy", "enable-leader-election", "expectation-timeout", "feature-gates", "launchpriority-workers",
		"leader-election-id", "leader-election-lease-duration", "leader-election-namespace", "leader-election-renew-deadline",
		"leader-election-resource-lock", "leader-election-retry-period", "namespace", "rate-limiter-base-delay",
		"rate-limiter-bucket-size", "rate-limiter-max-delay", "rate-limiter-qps", "rest-config-burst", "rest-config-qps",
		"shutdown-delay-duration", "sync-period", "webhook-initialize-timeout"}
	// DaemonFlags are those of the daemon.
	DaemonFlags = []string{"feature-gates", "max-workers-for-pull-image", "max-concurrency", "plugin-bin-dir", "plugin-config-file",
		"rest-config-burst", "rest-config-qps", "socket-file"}
	// set are flags whose values belong to the manifests: addresses that probes ask, folders that are mounted, and how much is logged.
	set = []string{"addr", "enable-pprof", "health-probe-addr", "kubeconfig", "logtostderr", "metrics-addr", "pprof-addr",
		"protection-log-path",
		"socket-root", "v", "webhook-client-ca-file"}
	// environment has the variables that keep their meaning.
	environment = []string{"CERTS_RENEW_BEFORE", "CUSTOM_RESOURCE_ENABLE"}
	// placement are the fields of pod templates that say where pods may run and how they get their images.
	placement = []string{"imagePullSecrets", "nodeSelector", "tolerations"}
)

// carried is what another Deployment or DaemonSet hands over.
type carried struct {
	Flags []string `json:"flags,omitempty"`
	Env   []any    `json:"env,omitempty"`
	// Notes name what is not carried over.
	Notes  []string `json:"notes,omitempty"`
	fields map[string]any
}

// flagSet knows the flags of logging, those of the kinds if they are wanted, and those with these names.
func flagSet(kinds bool, names []string) *pflag.FlagSet {
	fs := pflag.NewFlagSet("", pflag.ContinueOnError)
	fs.SetOutput(io.Discard)
	if kinds {
		(&registry.Flags{}).AddTo(fs)
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

// carry reads what a Deployment of a manager, or a DaemonSet of node daemons, hands over to the one of ours. Without a reading, gates are
// left out.
func carry(workload *unstructured.Unstructured, r *reading) carried {
	var c carried
	if workload == nil {
		return c
	}
	spec, _, _ := unstructured.NestedMap(workload.Object, "spec", "template", "spec")
	c.fields = map[string]any{}
	for _, field := range placement {
		if value, ok := spec[field]; ok {
			c.fields[field] = value
		}
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
		if !has && i+1 < len(args) && !strings.HasPrefix(args[i+1], "-") && (flag == nil || flag.NoOptDefVal == "") {
			i, value, has = i+1, args[i+1], true
		}
		text := "--" + name
		if has {
			text += "=" + value
		}
		switch {
		case slices.Contains(set, name):
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
	for _, item := range installation.Maps(container, "env") {
		name, _ := item["name"].(string)
		value, literal := item["value"].(string)
		switch {
		case slices.Contains(environment, name):
			c.Env = append(c.Env, item)
		case name == "KRUISE_DAEMON_CONFIG_NS" && literal && value != "kruise-daemon-config",
			name == "SECRET_NAME" && literal && value != installation.Secret, name == "SERVICE_NAME" && literal &&
				value != installation.Service:
			c.Notes = append(c.Notes, fmt.Sprintf("%s=%s is not carried over: the manifests say otherwise, see --manifests", name, value))
		}
	}
	return c
}

// on tells whether a feature gate is turned on by what is carried over.
func (c *carried) on(gate featuregate.Feature) bool {
	for _, text := range c.Flags {
		if list, ok := strings.CutPrefix(text, "--feature-gates="); ok {
			if gates, err := features.Parse(list); err == nil && gates.Enabled(gate) {
				return true
			}
		}
	}
	return false
}

// into changes a workload of the manifests so that it does what the other one did.
func (c *carried) into(workload *unstructured.Unstructured) error {
	if workload == nil {
		return nil
	}
	containers, _, err := unstructured.NestedSlice(workload.Object, "spec", "template", "spec", "containers")
	if err != nil || len(containers) == 0 {
		return fmt.Errorf("%s of the manifests has no containers", installation.Of(workload))
	}
	container, _ := containers[0].(map[string]any)
	args, _ := container["args"].([]any)
	for _, text := range c.Flags {
		args = append(args, text)
	}
	if len(args) > 0 {
		container["args"] = args
	}
	if env, _ := container["env"].([]any); len(c.Env) > 0 {
		container["env"] = append(env, c.Env...)
	}
	if err := unstructured.SetNestedSlice(workload.Object, containers, "spec", "template", "spec", "containers"); err != nil {
		return fmt.Errorf("%s: %w", installation.Of(workload), err)
	}
	for field, value := range c.fields {
		if err := unstructured.SetNestedField(workload.Object, value, "spec", "template", "spec", field); err != nil {
			return fmt.Errorf("%s: %w", installation.Of(workload), err)
		}
	}
	return nil
}

// mainContainer is the container of the manager or the daemon: the one with that name, or the first one.
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
