// Package recreate builds ContainerRecreateRequests for the commands that create them.
package recreate

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/afloat-project/afloat/internal/plugin/change"
)

// Kind is the kind of the requests.
var Kind = schema.GroupKind{Group: "apps.kruise.io", Kind: "ContainerRecreateRequest"}

// Settings of requests unless flags override them.
const (
	unreadyGracePeriodSeconds = 3
	minStartedSeconds         = 3
	activeDeadlineSeconds     = 300
	ttlSecondsAfterFinished   = 1800
)

// Flags select the containers to recreate, and how.
type Flags struct {
	// Containers are the names of the containers; all if empty.
	Containers []string
	// UnreadyGracePeriodSeconds is how long the pod is out of service before its containers stop.
	UnreadyGracePeriodSeconds int64
	// MinStartedSeconds is how long a new container must have run to count as recreated.
	MinStartedSeconds int32
}

// Add adds the flags to a command. containers is the name of the flag for the containers.
func (f *Flags) Add(flags *pflag.FlagSet, containers, shorthand string) {
	flags.StringSliceVarP(&f.Containers, containers, shorthand, nil,
		"The containers to recreate. If empty, all containers of the pod are recreated.")
	flags.Int64Var(&f.UnreadyGracePeriodSeconds, "unreadyGracePeriodSeconds", unreadyGracePeriodSeconds,
		"For how many seconds the pod is out of service before its containers are stopped.")
	flags.Int32Var(&f.MinStartedSeconds, "minStartedSeconds", minStartedSeconds,
		"For how many seconds a new container must have run until it counts as recreated.")
}

// Validate returns an error if the flags are invalid.
func (f *Flags) Validate() error {
	if f.UnreadyGracePeriodSeconds < 0 || f.MinStartedSeconds < 0 {
		return fmt.Errorf("--unreadyGracePeriodSeconds and --minStartedSeconds must not be negative")
	}
	return nil
}

// Request returns the request for containers of a pod, in the version that the server prefers. It returns an
// error if the pod does not have one of the chosen containers.
func (f *Flags) Request(clients change.Clients, pod *corev1.Pod,
	name string) (*unstructured.Unstructured, error) {
	var all, known []string
	for _, c := range pod.Spec.Containers {
		all = append(all, c.Name)
	}

	known = append(known, all...)
	for _, c := range pod.Spec.InitContainers {
		if c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			known = append(known, c.Name)
		}
	}

	chosen := all
	if len(f.Containers) > 0 {
		chosen = nil
		for _, name := range f.Containers {
			if name = strings.TrimSpace(name); !slices.Contains(known, name) {
				return nil, fmt.Errorf("pod %s has no container %q that could be recreated; it has %s",
					pod.Name, name, strings.Join(known, ", "))
			}
			if !slices.Contains(chosen, name) {
				chosen = append(chosen, name)
			}
		}
	}

	var containers []any
	for _, name := range chosen {
		containers = append(containers, map[string]any{"name": name})
	}

	mapping, err := change.Mapping(clients, Kind)
	if err != nil {
		return nil, err
	}

	request := &unstructured.Unstructured{Object: map[string]any{
		"spec": map[string]any{
			"podName":    pod.Name,
			"containers": containers,
			"strategy": map[string]any{
				"failurePolicy":             "Fail",
				"orderedRecreate":           false,
				"unreadyGracePeriodSeconds": f.UnreadyGracePeriodSeconds,
				"minStartedSeconds":         int64(f.MinStartedSeconds),
			},
			"activeDeadlineSeconds":   int64(activeDeadlineSeconds),
			"ttlSecondsAfterFinished": int64(ttlSecondsAfterFinished),
		},
	}}
	request.SetGroupVersionKind(mapping.GroupVersionKind)
	request.SetNamespace(pod.Namespace)
	request.SetName(name)

	return request, nil
}
