package runtime

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// environmentTimeout is the timeout of a command that prints an environment.
const environmentTimeout = 3 * time.Second

// printEnvironment lists commands that print the environment with a zero byte after each entry, so that
// values may contain line breaks and equal signs (#1108). The plain output of env cannot be used, because a
// line break in a value looks like a new entry.
var printEnvironment = [][]string{{"env", "-0"}, {"cat", "/proc/self/environ"}}

// Environment returns the environment with which a running container was started. It comes from the runtime's
// record, which needs no program in the image (#2136), or else from a command in the container (ND-105). Its
// values must not be logged (ND-073).
func (r *Runtime) Environment(ctx context.Context, id string) (map[string]string, error) {
	recorded, err := r.recordedEnvironment(ctx, id)
	if err == nil {
		return recorded, nil
	}

	failures := []error{err}
	for _, command := range printEnvironment {
		out, err := r.exec(ctx, r.commands, id, command, environmentTimeout, mostOfEnvironment)
		if err == nil {
			return entries(strings.Split(string(bytes.TrimSuffix(out, []byte{0})), "\x00")), nil
		}
		failures = append(failures, fmt.Errorf("%s: %w", strings.Join(command, " "), err))
	}

	return nil, fmt.Errorf("reading the environment: %w", errors.Join(failures...))
}

// recordedEnvironment reads the specification of the OCI runtime, which is the part of the verbose status
// that containerd and CRI-O have in common.
func (r *Runtime) recordedEnvironment(ctx context.Context, id string) (map[string]string, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()

	answer, err := r.containers.ContainerStatus(ctx,
		&cri.ContainerStatusRequest{ContainerId: bare(id), Verbose: true})
	if err != nil {
		return nil, wrap(err, "inspecting container "+id)
	}

	var info struct {
		RuntimeSpec *struct {
			Process *struct {
				Env []string `json:"env"`
			} `json:"process"`
		} `json:"runtimeSpec"`
	}

	// The error is not returned, because it would contain the text that could not be parsed, which may be a
	// value.
	if json.Unmarshal([]byte(answer.GetInfo()["info"]), &info) != nil || info.RuntimeSpec == nil ||
		info.RuntimeSpec.Process == nil {
		return nil, errors.New("the runtime's record of the container has no environment")
	}

	return entries(info.RuntimeSpec.Process.Env), nil
}

// entries splits each entry at the first equal sign. If several entries have the same name, the last one
// counts.
func entries(list []string) map[string]string {
	values := make(map[string]string, len(list))
	for _, entry := range list {
		if name, value, ok := strings.Cut(entry, "="); ok {
			values[name] = value
		}
	}
	return values
}
