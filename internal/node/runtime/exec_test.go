package runtime_test

import (
	"strings"
	"testing"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/afloat-project/afloat/internal/node/runtime/fakecri"
)

// A command that prints as much as it likes has run; what it printed does not come into the daemon's memory,
// and is no environment.
func TestCommandsThatPrintTooMuch(t *testing.T) {
	s := fakecri.Start(t)
	r := look(t, s)
	s.Add(fakecri.Container{ID: "c", UID: "u", State: cri.ContainerState_CONTAINER_RUNNING, NoRecord: true})
	s.Set(func(s *fakecri.Server) {
		s.OnExec = func(string, []string) (string, int32, error) { return strings.Repeat("x", 8<<20), 0, nil }
	})
	if err := r.Exec(t.Context(), "containerd://c", []string{"head", "-c", "8M", "/dev/zero"}, time.Minute); err != nil {
		t.Errorf("a command that prints 8 MiB: %v", err)
	}
	if environment, err := r.Environment(t.Context(), "containerd://c"); err == nil {
		t.Errorf("environment that is too large: got %d variables, want an error", len(environment))
	}
	s.Set(func(s *fakecri.Server) {
		s.OnExec = func(string, []string) (string, int32, error) { return "", 3, nil }
	})
	if err := r.Exec(t.Context(), "containerd://c", []string{"false"}, time.Minute); err == nil {
		t.Error("its exit code is lost")
	}
}

// A node is so busy that the runtime takes more than a second to start a command: the command itself ends in
// its time, and has succeeded. It is not said of a healthy container that it did not answer.
func TestARuntimeThatIsBusyTakesLongToStartACommand(t *testing.T) {
	s := fakecri.Start(t)
	r := look(t, s)
	s.Add(fakecri.Container{ID: "c", UID: "u", State: cri.ContainerState_CONTAINER_RUNNING})
	s.Set(func(s *fakecri.Server) {
		s.OnExec = func(string, []string) (string, int32, error) {
			<-time.After(1100 * time.Millisecond)
			return "yes", 0, nil
		}
	})
	output, err := r.Run(t.Context(), "containerd://c", []string{"alive"}, time.Millisecond)
	if err != nil {
		t.Errorf("a command that a busy runtime starts late: %v", err)
	} else if string(output.Stdout) != "yes" {
		t.Errorf("a command that a busy runtime starts late: printed %q, want \"yes\"", output.Stdout)
	}
}
