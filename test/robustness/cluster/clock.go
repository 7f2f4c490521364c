package cluster

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// shifted is added to the package time: the wall clock of the process differs by what a variable says. The
// monotonic clock, by which timers run, does not.
const shifted = `
var clockShift = func() int64 {
	value, _ := syscall.Getenv("` + clockVariable + `")
	shift, _ := ParseDuration(value)
	return int64(shift / Second)
}()
`

// BuildShifted builds the manager with a clock that can be shifted, from the sources of the working folder.
// It compiles the standard library anew, which takes minutes the first time.
func BuildShifted(ctx context.Context, binary string) error {
	dir, err := os.MkdirTemp("", "clock-")
	if err != nil {
		return fmt.Errorf("making a folder for the package time: %w", err)
	}
	defer os.RemoveAll(dir)
	root, err := exec.CommandContext(ctx, "go", "env", "GOROOT").Output()
	if err != nil {
		return fmt.Errorf("finding Go: %w", err)
	}
	original := filepath.Join(strings.TrimSpace(string(root)), "src", "time", "time.go")
	source, err := os.ReadFile(original)
	if err != nil {
		return fmt.Errorf("reading the package time: %w", err)
	}
	const before, imported = "func Now() Time {\n\tsec, nsec, mono := runtimeNow()\n", "import (\n"
	if !bytes.Contains(source, []byte(before)) || !bytes.Contains(source, []byte(imported)) {
		return errors.New("the package time of this Go cannot be changed: its function Now is another one")
	}
	source = bytes.Replace(source, []byte(before), []byte(before+"\tsec += clockShift\n"), 1)
	source = bytes.Replace(source, []byte(imported), []byte(imported+"\t\"syscall\"\n"), 1)
	changed, overlay := filepath.Join(dir, "time.go"), filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(changed, append(source, shifted...), 0o644); err != nil {
		return fmt.Errorf("writing the package time: %w", err)
	}
	replace, err := json.Marshal(map[string]any{"Replace": map[string]string{original: changed}})
	if err != nil {
		return fmt.Errorf("writing the overlay: %w", err)
	}
	if err := os.WriteFile(overlay, replace, 0o644); err != nil {
		return fmt.Errorf("writing the overlay: %w", err)
	}
	build := exec.CommandContext(ctx, "go", "build", "-overlay", overlay, "-tags", "grpcnotrace", "-ldflags", "-s -w",
		"-o", binary, "./cmd/manager")
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("building the manager: %w: %s", err, out)
	}
	return nil
}
