#!/usr/bin/perl
# A stand-in for nvcc: the host's half of a .cu file, compiled by g++. Kernels are left out and
# launches do nothing, which is as much as a machine without a GPU would do with them.
use strict;
use warnings;

my $release = "{release}";
for (@ARGV) {
    if (/^(-V|--version)$/) {
        print "nvcc: NVIDIA (R) Cuda compiler driver, a stand-in\nCuda compilation tools, release $release, V$release.0\n";
        exit 0;
    }
    if (/^(-h|--help)$/) {
        print "--gpu-architecture <arch>\n  Allowed values: 'sm_35','sm_37','sm_52','sm_60','sm_61','sm_70'\n--gpu-code <code>\n";
        exit 0;
    }
}

my (@options, $source);
my $compiler = "g++";
my $only_dependencies = 0;
while (@ARGV) {
    my $word = shift @ARGV;
    if ($word eq "-gencode" or $word eq "--generate-code") { shift @ARGV; }
    elsif ($word eq "-ccbin" or $word eq "--compiler-bindir") { $compiler = shift @ARGV; }
    elsif ($word eq "-Xcompiler" or $word eq "--compiler-options") { push @options, host_options(shift @ARGV); }
    elsif ($word =~ /^-(gencode|arch|code)=/) { }
    elsif ($word eq "-D__CUDACC__") { }    # FindCUDA, for dependencies; g++ is no such compiler
    elsif ($word =~ /^--std=(.*)/) { push @options, "-std=$1"; }
    elsif ($word eq "-M") { $only_dependencies = 1; push @options, "-M"; }
    elsif ($word =~ /\.cu$/) { $source = $word; }
    else { push @options, $word; }
}
die "nvcc (stand-in): no .cu file among the arguments\n" unless defined $source;

my ($folder) = $source =~ m{^(.*)/};
my $target = "{target}";
push @options, "-I" . ($folder // "."), "-I$target/include", "-include", "cuda_runtime.h";
exec $compiler, "-x", "c++", $source, @options if $only_dependencies;

open my $in, "<", $source or die "$source: $!\n";
my $text = do { local $/; <$in> };
$text =~ s/(?:template\s*<[^>]*>\s*)?__global__[^{;]*(\{(?:[^{}]++|(?1))*\})//g;
$text =~ s/\w+\s*<<<.*?>>>\s*(\((?:[^()]++|(?1))*\))/(void)0/gs;
my $host = "/tmp/nvcc-$$.cpp";
open my $out, ">", $host or die "$host: $!\n";
print $out $text;
close $out;
my $status = system $compiler, "-x", "c++", $host, @options;
unlink $host;
exit($status >> 8 || ($status ? 1 : 0));

# FindCUDA passes the host's flags as one word: ,"-fPIC","-O3"
sub host_options {
    my ($word) = @_;
    return grep { length } map { s/^"|"$//gr } split /,/, $word;
}
