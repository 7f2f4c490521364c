package takeover

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/afloat-project/afloat/internal/plugin/operations/installation"
)

// template is what the pod template of another installation hands over besides flags and variables.
type template struct {
	fields              map[string]any // of the pod spec
	labels, annotations map[string]string
	volumes, mounts     []any
	ports               map[string]int64 // of the container, by name
	replicas            int64            // the most replicas that are possible, or 0
}

// Fields of pod specs. The fields in placement say where pods may run, how they are reached and how they get
// their images. They are carried over unless they have the value in defaulted, which the API server fills in.
// Fields that are in neither placement nor own are reported if they differ from the manifests.
var (
	placement = []string{"affinity", "dnsConfig", "dnsPolicy", "hostAliases", "hostNetwork",
		"imagePullSecrets", "nodeSelector", "priorityClassName", "runtimeClassName", "schedulerName",
		"tolerations", "topologySpreadConstraints"}
	defaulted = map[string]any{"dnsPolicy": "ClusterFirst", "hostNetwork": false,
		"schedulerName": "default-scheduler"}
	// own lists the fields that always come from the manifests: names, and what was made for other programs.
	own = []string{"containers", "initContainers", "priority", "preemptionPolicy", "restartPolicy",
		"securityContext", "serviceAccount", "serviceAccountName", "terminationGracePeriodSeconds", "volumes"}
)

// theirVariables lists the variables that only the other installation understands, or that the manifests set.
var theirVariables = []string{"KUBE_CACHE_MUTATION_DETECTOR", "NODE_NAME", "POD_NAMESPACE",
	"WEBHOOK_CONFIGURATION_FAILURE_POLICY_PODS"}

// elsewhere maps variables to their defaults. By these variables, a manager is called or keeps certificates
// in another way than the manifests define.
var elsewhere = map[string]string{"KRUISE_DAEMON_CONFIG_NS": "kruise-daemon-config",
	"SECRET_NAME": installation.Secret, "SERVICE_NAME": installation.Service,
	"WEBHOOK_CERT_DIR": "/tmp/kruise-webhook-certs", "WEBHOOK_CERT_WRITER": "", "WEBHOOK_HOST": ""}

// environment carries over the variables that keep their meaning, and those that are unknown to the project,
// such as those of proxies.
func (c *carried) environment(container map[string]any, r *reading) (notes []string) {
	for _, item := range installation.Maps(container, "env") {
		name, _ := item["name"].(string)
		value, literal := item["value"].(string)
		usual, known := elsewhere[name]
		switch {
		case slices.Contains(theirVariables, name) || known && (value == usual || !literal):
		case known:
			notes = append(notes,
				fmt.Sprintf("%s=%s is not carried over: the manifests say otherwise, see --manifests", name,
					value))
		case name == "WEBHOOK_PORT":
			c.port("webhook", value)
			if c.ports["webhook"] != 0 {
				c.Env = append(c.Env, item)
			}
		default:
			c.Env = append(c.Env, item)
			if name == "CERTS_RENEW_BEFORE" && r != nil &&
				slices.Contains([]string{"1.7.0", "1.7.5"}, r.releases[0]) {
				notes = append(notes,
					fmt.Sprintf(
						"%s=%s is less there than it says, a day being 7 hours; here it is what it says",
						name, value))
			}
		}
	}

	if from := installation.Maps(container, "envFrom"); len(from) > 0 {
		notes = append(notes, "envFrom is not carried over: name the variables in env, or see --manifests")
	}

	return notes
}

// usualPorts are the ports of the manifests. The daemon also has a port named health.
var usualPorts = map[string][]int64{"webhook": {9876}, "metrics": {8080}, "health": {8000, 10221}}

// port carries a port over if it differs from that of the manifests.
func (c *carried) port(name, address string) {
	port, err := strconv.ParseInt(address[strings.LastIndex(address, ":")+1:], 10, 32)
	if err != nil || slices.Contains(usualPorts[name], port) {
		return
	}
	if c.ports == nil {
		c.ports = map[string]int64{}
	}
	c.ports[name] = port
}

// read carries over the pod template of a workload. It describes how the template differs from the manifests,
// and what is not carried over.
func (c *carried) read(workload, manifest *unstructured.Unstructured) (notes []string) {
	wanted := map[string]any{}
	if manifest != nil {
		wanted, _, _ = unstructured.NestedMap(manifest.Object, "spec", "template", "spec")
	}

	meta := func(field string) map[string]string {
		all, _, _ := unstructured.NestedStringMap(workload.Object, "spec", "template", "metadata", field)
		maps.DeleteFunc(all, func(name, _ string) bool {
			return name == "control-plane" || strings.HasPrefix(name, "kubectl.kubernetes.io/")
		})
		return all
	}

	c.labels, c.annotations, c.fields = meta("labels"), meta("annotations"), map[string]any{}
	spec, _, _ := unstructured.NestedMap(workload.Object, "spec", "template", "spec")
	var carried, left []string
	for _, field := range slices.Sorted(maps.Keys(spec)) {
		value := spec[field]
		switch empty := fmt.Sprint(value); {
		case slices.Contains(own, field), defaulted[field] == value, empty == "", empty == "map[]",
			empty == "[]", empty == "<nil>":
		case slices.Contains(placement, field):
			if c.fields[field] = value; !equality.Semantic.DeepEqual(value, wanted[field]) {
				carried = append(carried, field)
			}
		case !equality.Semantic.DeepEqual(value, wanted[field]):
			left = append(left, field)
		}
	}

	if c.fields["hostNetwork"] == true {
		c.replicas, _, _ = unstructured.NestedInt64(workload.Object, "spec", "replicas")
	}

	container := mainContainer(workload)
	volumes := c.readVolumes(spec, container)
	for _, name := range slices.Concat(slices.Sorted(maps.Keys(c.labels)),
		slices.Sorted(maps.Keys(c.annotations))) {
		carried = append(carried, "metadata "+name)
	}

	for _, name := range slices.Sorted(maps.Keys(c.ports)) {
		carried = append(carried, fmt.Sprintf("port %s %d", name, c.ports[name]))
	}

	if carried = append(carried, volumes...); len(carried) > 0 {
		notes = append(notes, "pod template hands over: "+strings.Join(carried, ", "))
	}
	if all := installation.Maps(workload.Object, "spec", "template", "spec", "containers"); len(all) > 1 {
		left = append(left, fmt.Sprintf("containers besides %v", container["name"]))
	}
	if more := installation.Maps(workload.Object, "spec", "template", "spec",
		"initContainers"); len(more) > 0 {
		left = append(left, "initContainers")
	}
	if more := limits(container); more != "" {
		left = append(left, more)
	}

	if len(left) > 0 {
		notes = append(notes,
			"pod template has what is not carried over: "+strings.Join(left, ", ")+
				"; add what you need by --manifests")
	}

	return notes
}

// readVolumes carries over what is mounted where the manifests mount nothing, and the folder of the runtime
// sockets.
func (c *carried) readVolumes(spec, container map[string]any) (carried []string) {
	for _, mount := range installation.Maps(container, "volumeMounts") {
		path, _ := mount["mountPath"].(string)
		volumes := installation.Maps(spec, "volumes")
		at := slices.IndexFunc(volumes, func(v map[string]any) bool { return v["name"] == mount["name"] })
		switch {
		case at < 0, path == "/tmp/k8s-webhook-server/serving-certs",
			path == "/var/run/secrets/kubernetes.io/serviceaccount":
			continue
		case path == sockets && installation.Text(volumes[at], "hostPath", "path") == "/var/run":
			continue
		}
		c.mounts, c.volumes = append(c.mounts, mount), append(c.volumes, volumes[at])
		carried = append(carried, fmt.Sprintf("volume %v at %s", mount["name"], path))
	}

	return carried
}

// sockets is the folder in which the node daemon finds the sockets of runtimes.
const sockets = "/hostvarrun"

// limits describes a memory limit that is higher than any that OpenKruise sets itself.
func limits(container map[string]any) string {
	text := installation.Text(container, "resources", "limits", "memory")
	if limit, err := resource.ParseQuantity(text); err == nil && limit.Cmp(resource.MustParse("2Gi")) > 0 {
		return "resources (limit of memory " + text + ")"
	}
	return ""
}
