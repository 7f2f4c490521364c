// Package doctor checks whether an installation and the workloads that it manages are healthy. It reads with
// the permissions of the user, writes nothing, and reports what it may not read as unknown.
package doctor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	cmdutil "k8s.io/kubectl/pkg/cmd/util"
	"k8s.io/kubectl/pkg/util/templates"
	"k8s.io/utils/exec"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/afloat-project/afloat/internal/engine/wording"
	"github.com/afloat-project/afloat/internal/plugin/commands/explain"
	"github.com/afloat-project/afloat/internal/plugin/operations/installation"
)

// Status is the result of a check.
type Status string

// Values of Status, from best to worst.
const (
	OK      Status = "ok"
	Unknown Status = "unknown"
	Warning Status = "warning"
	Problem Status = "problem"
)

// Finding is a line of the report.
type Finding struct {
	Check  string `json:"check"`
	Status Status `json:"status"`
	// Object is the object that the finding is about, such as Deployment
	// kruise-system/kruise-controller-manager.
	Object  string `json:"object,omitempty"`
	Message string `json:"message"`
	// Advice is what the user can do about it.
	Advice string `json:"advice,omitempty"`
}

// Report contains all findings, with the numbers of problems and warnings.
type Report struct {
	Findings []Finding `json:"findings"`
	Problems int       `json:"problems"`
	Warnings int       `json:"warnings"`
}

// mostOfCheck limits the findings of one check, so that the report of a large cluster stays readable.
const mostOfCheck = 25

// doctor is one run of the command.
type doctor struct {
	genericiooptions.IOStreams
	output    string
	namespace string

	client client.Reader
	// server returns the version of the API server.
	server func() (*version.Info, error)
	now    time.Time

	report Report
	counts map[string]int
	// manifests are the manifests of this release; manager and daemon are the live objects.
	manifests       []*unstructured.Unstructured
	manager, daemon *unstructured.Unstructured
	// authority is the CA certificate of the Secret in PEM, or empty if the Secret may not be read.
	authority []byte
	// leader is the name of the leader's pod, or empty if it is unknown; led is when it became the leader, or
	// zero.
	leader string
	led    time.Time
	// stored maps the name of a kind of the project to the version in which the cluster stores it.
	stored map[string]schema.GroupVersionKind
}

var long = templates.LongDesc(`
	Look whether the manager, its node daemons, its webhooks and definitions are well, and whether workloads, pods and requests are stuck.

	Each check prints what it finds: ok, warning, problem, or unknown if you may not read what it needs; and what to do about it.
	Nothing is written. The exit code is 1 if there is a problem.`)

var example = templates.Examples(`
	# Is everything well?
	kubectl afloat doctor

	# The problems alone
	kubectl afloat doctor -o json | jq '.findings[] | select(.status == "problem")'`)

// New returns the command doctor.
func New(f cmdutil.Factory, streams genericiooptions.IOStreams) *cobra.Command {
	d := &doctor{IOStreams: streams, counts: map[string]int{}}
	cmd := &cobra.Command{
		Use:                   "doctor [-o json|yaml]",
		DisableFlagsInUseLine: true,
		Short:                 "Look whether the installation is well, and what is stuck",
		Long:                  long, Example: example,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if d.output != "" && d.output != "json" && d.output != "yaml" {
				return fmt.Errorf("--output: %q is none of json, yaml", d.output)
			}
			config, err := f.ToRESTConfig()
			if err != nil {
				return err //nolint:wrapcheck // kubectl's words
			}
			if d.client, err = client.New(config, client.Options{Scheme: explain.Scheme}); err != nil {
				return fmt.Errorf("making a client: %w", err)
			}
			discovery, err := f.ToDiscoveryClient()
			if err != nil {
				return err //nolint:wrapcheck // kubectl's words
			}
			d.server, d.now = discovery.ServerVersion, time.Now()
			return d.run(cmd.Context())
		},
	}

	cmd.Flags().StringVarP(&d.output, "output", "o", "", "output format: json, yaml")
	cmd.Flags().StringVar(&d.namespace, "manager-namespace", installation.Namespace,
		"the namespace that the manager is installed in")
	cmdutil.CheckErr(cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]string{"json", "yaml"},
		cobra.ShellCompDirectiveNoFileComp)))

	return cmd
}

func (d *doctor) run(ctx context.Context) error {
	manifests, err := installation.Manifests(installation.Choice{Namespace: d.namespace})
	if err != nil {
		return err
	}

	d.manifests, d.report.Findings = manifests, []Finding{}
	for _, check := range []struct {
		name string
		make func(context.Context) error
	}{
		{"API server", d.checkServer}, {"manager", d.checkManager}, {"leader", d.checkLeader},
		{"certificates", d.checkCertificates}, {"webhooks", d.checkWebhooks},
		{"definitions", d.checkDefinitions}, {"controllers", d.checkSeen},
		{"node daemons", d.checkDaemons}, {"workloads", d.checkWorkloads}, {"pods", d.checkPods},
		{"requests", d.checkRequests}, {"budgets", d.checkBudgets}, {"fields of others", d.checkFields},
	} {
		before := len(d.report.Findings)
		if err := check.make(ctx); err != nil {
			d.unreadable(check.name, err)
		}
		if n := d.counts[check.name]; n > mostOfCheck {
			d.report.Findings = append(d.report.Findings, Finding{Check: check.name, Status: Warning,
				Message: fmt.Sprintf("and %s more", wording.Count(n-mostOfCheck, "finding"))})
		}
		if len(d.report.Findings) == before {
			d.add(check.name, OK, "", "nothing is wrong", "")
		}
	}

	if err := d.print(); err != nil {
		return err
	}
	if d.report.Problems > 0 {
		return exec.CodeExitError{Err: errors.New(""), Code: 1}
	}

	return nil
}

// add records a finding. It drops a finding beyond mostOfCheck, but counts it.
func (d *doctor) add(check string, status Status, object, message, advice string) {
	switch status {
	case Problem:
		d.report.Problems++
	case Warning:
		d.report.Warnings++
	}
	if d.counts[check]++; d.counts[check] <= mostOfCheck {
		d.report.Findings = append(d.report.Findings, Finding{check, status, object, message, advice})
	}
}

// unreadable records a failed read: as unknown if the user may not read the object, otherwise as a problem.
func (d *doctor) unreadable(check string, err error) {
	if isForbidden(err) {
		d.add(check, Unknown, "", "you may not read what this takes: "+err.Error(), "")
		return
	}
	d.add(check, Problem, "", err.Error(), "")
}

// isForbidden reports whether the user lacks the permission to read something.
func isForbidden(err error) bool { return apierrors.IsForbidden(err) }

// get reads an object and returns nil if it does not exist.
func (d *doctor) get(ctx context.Context, kind schema.GroupVersionKind,
	namespace, name string) (*unstructured.Unstructured, error) {
	return installation.Get(ctx, d.client, kind, namespace, name)
}

// print writes the report to the output in the requested format.
func (d *doctor) print() error {
	if d.output != "" {
		text, err := json.MarshalIndent(d.report, "", "    ")
		if err == nil && d.output == "yaml" {
			text, err = yaml.Marshal(d.report)
		}
		if err != nil {
			return fmt.Errorf("encoding: %w", err)
		}
		_, err = fmt.Fprintln(d.Out, strings.TrimRight(string(text), "\n"))
		return err
	}

	w := tabwriter.NewWriter(d.Out, 0, 0, 2, ' ', 0)
	for _, f := range d.report.Findings {
		text := f.Message
		if f.Object != "" {
			text = f.Object + ": " + text
		}
		fmt.Fprintf(w, "%s\t%s\t%s\n", f.Status, f.Check, text)
		if f.Advice != "" {
			fmt.Fprintf(w, "\t\t  to do: %s\n", f.Advice)
		}
	}

	w.Flush()
	fmt.Fprintf(d.Out, "%s, %s\n", wording.Count(d.report.Problems, "problem"),
		wording.Count(d.report.Warnings, "warning"))
	return nil
}

// age returns the time since the given RFC 3339 timestamp, or zero if it cannot be parsed.
func (d *doctor) age(text string) time.Duration {
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return 0
	}
	return d.now.Sub(t)
}

// ago formats a duration in a few words.
func ago(d time.Duration) string {
	switch {
	case d < 2*time.Minute:
		return d.Round(time.Second).String()
	case d < 2*time.Hour:
		return wording.Count(int(d.Minutes()), "minute")
	case d < 48*time.Hour:
		return wording.Count(int(d.Hours()), "hour")
	}
	return wording.Count(int(d.Hours()/24), "day")
}
