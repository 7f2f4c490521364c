package plugin

import (
	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/kubectl/pkg/cmd/apiresources"
	"k8s.io/kubectl/pkg/cmd/apply"
	"k8s.io/kubectl/pkg/cmd/config"
	"k8s.io/kubectl/pkg/cmd/diff"
	"k8s.io/kubectl/pkg/cmd/kustomize"
	"k8s.io/kubectl/pkg/cmd/options"
	"k8s.io/kubectl/pkg/cmd/patch"
	kubectlplugin "k8s.io/kubectl/pkg/cmd/plugin"
	"k8s.io/kubectl/pkg/cmd/replace"
	"k8s.io/kubectl/pkg/cmd/scale"
	cmdutil "k8s.io/kubectl/pkg/cmd/util"
	"k8s.io/kubectl/pkg/cmd/wait"
	"k8s.io/kubectl/pkg/util/templates"

	"github.com/afloat-project/afloat/internal/plugin/commands/create"
	"github.com/afloat-project/afloat/internal/plugin/commands/describe"
	"github.com/afloat-project/afloat/internal/plugin/commands/exec"
	"github.com/afloat-project/afloat/internal/plugin/commands/explain"
	"github.com/afloat-project/afloat/internal/plugin/commands/expose"
	"github.com/afloat-project/afloat/internal/plugin/commands/get"
	"github.com/afloat-project/afloat/internal/plugin/commands/restart"
	"github.com/afloat-project/afloat/internal/plugin/commands/rollout"
	"github.com/afloat-project/afloat/internal/plugin/commands/scaledown"
	"github.com/afloat-project/afloat/internal/plugin/commands/set"
	"github.com/afloat-project/afloat/internal/plugin/dashboard"
	"github.com/afloat-project/afloat/internal/plugin/operations/doctor"
	"github.com/afloat-project/afloat/internal/plugin/operations/migrate"
	"github.com/afloat-project/afloat/internal/plugin/operations/takeover"
)

// commands returns all commands, in the groups in which the help shows them. It includes commands of kubectl
// itself, because OpenKruise's plugin has them as well.
func commands(
	f cmdutil.Factory, flags *genericclioptions.ConfigFlags, streams genericiooptions.IOStreams,
) templates.CommandGroups {
	return templates.CommandGroups{
		{Message: "Understand rollouts:", Commands: []*cobra.Command{
			explain.NewPlan(f, streams),
			explain.NewWhy(f, streams),
		}},
		{Message: "See and control rollouts:", Commands: []*cobra.Command{
			rollout.New(f, streams, explain.Reason(f)),
			dashboard.New(f, streams),
		}},
		{Message: "Change workloads:", Commands: []*cobra.Command{
			set.New(f, streams),
			migrate.New(f, streams),
			restart.New(f, streams),
			scaledown.New(f, streams),
		}},
		{Message: "Create and look:", Commands: []*cobra.Command{
			create.New(f, streams),
			expose.New(f, streams),
			get.New(f, streams),
			describe.New(f, streams),
			exec.New(f, streams),
		}},
		{Message: "Look after the installation:", Commands: []*cobra.Command{
			doctor.New(f, streams),
			takeover.New(f, streams),
		}},
		{Message: "Commands of kubectl:", Commands: []*cobra.Command{
			scale.NewCmdScale(f, streams),
			apply.NewCmdApply("kubectl", f, streams),
			diff.NewCmdDiff(f, streams),
			patch.NewCmdPatch(f, streams),
			replace.NewCmdReplace(f, streams),
			wait.NewCmdWait(flags, streams),
			kustomize.NewCmdKustomize(streams),
			config.NewCmdConfig(f, clientcmd.NewDefaultPathOptions(), streams),
			kubectlplugin.NewCmdPlugin(streams),
			newVersion(f, streams),
			apiresources.NewCmdAPIResources(f, streams),
			apiresources.NewCmdAPIVersions(f, streams),
			options.NewCmdOptions(streams.Out),
		}},
	}
}
