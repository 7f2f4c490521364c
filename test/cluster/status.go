package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
)

func statusCommand() *cobra.Command {
	return &cobra.Command{
		Use: "status", Short: "Say what runs, where; fails unless the cluster is whole", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := openExisting()
			if err != nil {
				return err
			}
			return c.status(cmd.Context())
		},
	}
}

func (c *cluster) status(ctx context.Context) error {
	fmt.Printf(
		"cluster %s  Kubernetes %s  %s\nserver %s  registry %s  pods %s  services %s  this machine %s\n\n",
		c.name, c.spec.Version, c.dir, c.server(), c.registry(), c.podCIDR(), c.serviceCIDR(),
		c.hostAddress())
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "PROGRAM\tPROCESS\tMEMORY\tLOG")
	missing := 0
	for _, name := range c.expected() {
		r, ok := c.process(name)
		if !ok {
			missing++
			fmt.Fprintf(w, "%s\tnot running\t\t%s\n", name, c.logPath(name))
			continue
		}
		fmt.Fprintf(w, "%s\t%d\t%s\t%s\n", name, r.PID, memory(r.PID), c.logPath(name))
	}

	if err := w.Flush(); err != nil {
		return err
	}
	if missing > 0 {
		return fmt.Errorf("%d programs do not run: `go run . up` starts them", missing)
	}

	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	a, err := c.api()
	if err != nil {
		return err
	}

	ready, waiting, err := c.readyNodes(ctx, a)
	if err != nil {
		return err
	}

	fmt.Printf("\n%d nodes ready\n", ready)
	if len(waiting) > 0 {
		return fmt.Errorf("nodes not ready: %s", strings.Join(waiting, " "))
	}

	return nil
}

// memory returns the resident memory of a process, for people.
func memory(pid int) string {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(b)) {
		var kb int
		if n, _ := fmt.Sscanf(line, "VmRSS: %d kB", &kb); n == 1 {
			return fmt.Sprintf("%d MiB", kb>>10)
		}
	}
	return ""
}
