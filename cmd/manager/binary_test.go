package main

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// TestLinkerMayLeaveOutMethods: no package of the manager and of the daemon, as they are built for images, pulls in
// html/template. It calls methods by names that are known at run time only, so that the linker keeps every
// exported method of every type: 20 MB of the manager, and 5 MiB of its memory.
func TestLinkerMayLeaveOutMethods(t *testing.T) {
	for _, program := range []string{".", "../daemon"} {
		out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", "-tags", "grpcnotrace", program).Output()
		if err != nil {
			t.Fatalf("listing what %s is made of: %v", program, err)
		}
		if slices.Contains(strings.Fields(string(out)), "html/template") {
			t.Errorf("packages of %s: html/template is among them, want none that keeps unused methods", program)
		}
	}
}
